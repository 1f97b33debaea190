"""Formulas of the pages as MathML, made when the site is built: $…$ within a line, ```math for a line of its own.

The same source is rendered by GitHub. Readers' browsers draw MathML themselves, so that no script is loaded.
"""

import re
from xml.etree.ElementTree import Element

from latex2mathml.converter import convert
from markdown import Extension, Markdown
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor

BLOCK = re.compile(r"^```math\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
INLINE = r"(?<![\\$\w])\$(?![\s$])([^$\n]*(?:\n[^$\n]+)?[^$\s])\$(?![\w$])([,.;:)?]*)"


PART = re.compile(r"(?:\\qquad\s*)+|\n\s*(?==)")  # where a formula of its own line may go on in the next line


def display_parts(latex: str) -> list[str]:
    """The parts of a formula between which a line may break: at wide spaces, and where a line of its source begins
    with an equals sign; an environment has lines of its own."""
    return [latex] if "\\begin" in latex else [part.strip() for part in PART.split(latex)]


def formula(latex: str, display: str) -> str:
    """A formula as MathML; what the converter does not know, it would show as it is written."""
    mathml = convert(re.sub(r"\\(begin|end)\{aligned\}", r"\\\1{align*}", latex), display=display)
    if "\\" in mathml or "<mi>&</mi>" in mathml:
        raise ValueError(f"a formula has a command that the site cannot render: {latex}")
    return mathml


class Display(Preprocessor):
    """A fence of the language math becomes a formula of its own line; it comes before other fences."""

    def run(self, lines: list[str]) -> list[str]:
        return BLOCK.sub(self.stored, "\n".join(lines)).split("\n")

    def stored(self, fence: re.Match[str]) -> str:
        html = "\n".join(f"<span>{formula(part, 'block')}</span>" for part in display_parts(fence[1].strip()))
        return self.md.htmlStash.store(f'<div class="formula" tabindex="0">{html}</div>')


class Inline(InlineProcessor):
    """A formula within a line; it comes after code and before emphasis and escapes."""

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[Element | str, int, int]:  # noqa: N802
        html = formula(m[1], "inline")
        if m[2]:  # a full stop does not begin a line
            html = f'<span class="unbroken">{html}{m[2]}</span>'
        return self.md.htmlStash.store(html), m.start(0), m.end(0)


class Formulas(Extension):
    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        md.preprocessors.register(
            Display(md), "display-math", 27
        )  # after whitespace is normalised, before other fences
        md.inlinePatterns.register(Inline(INLINE, md), "inline-math", 185)


def makeExtension(**options: object) -> Formulas:  # noqa: N802
    return Formulas(**options)

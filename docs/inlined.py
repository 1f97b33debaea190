"""Figures that move become part of the page, so that it can colour them and add a slider."""

from pathlib import Path
from xml.etree.ElementTree import Element

from markdown import Extension, Markdown
from markdown.treeprocessors import Treeprocessor

FIGURES = Path(__file__).parent


class Inlining(Treeprocessor):
    def run(self, root: Element) -> None:
        for parent in root.iter("p"):
            if len(parent) == 1 and parent[0].tag == "img" and "/moving-" in parent[0].get("src", ""):
                drawing = (FIGURES / parent[0].get("src", "")).read_text()
                words = parent[0].get("alt", "")
                html = f'<figure class="moving">{drawing}<figcaption>{words}</figcaption></figure>'
                parent.remove(parent[0])
                parent.text = self.md.htmlStash.store(html)


class Inlined(Extension):
    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        md.treeprocessors.register(Inlining(md), "moving-figures", 5)  # after inline patterns


def makeExtension(**options: object) -> Inlined:  # noqa: N802
    return Inlined(**options)

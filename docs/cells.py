"""Cells of tables: long names break where their parts meet, commands between words, (64, 8, 128, 32) nowhere."""

import re
from xml.etree.ElementTree import Element, SubElement

from markdown import Extension, Markdown
from markdown.treeprocessors import Treeprocessor


class Breaking(Treeprocessor):
    def run(self, root: Element) -> None:
        for cell in root.iter("td"):
            if re.fullmatch(r"\([\d, ]+\)", cell.text or ""):
                cell.set("class", "unbroken")
            for code in list(cell.iter("code")):
                first, *rest = (code.text or "").split(" ")
                code.text = ""
                self.add(code, first, command=bool(rest))
                for word in rest:
                    code[-1].tail = f"{code[-1].tail or ''} "
                    self.add(code, word, command=True)

    def add(self, code: Element, word: str, *, command: bool) -> None:
        """A word of a command, which is not broken at its hyphens; or a name."""
        if command:
            SubElement(code, "span", {"class": "unbroken"}).text = word
            return
        first, *rest = re.split(r"(?<=[/_])(?=\w)|(?<=::)|(?<=\.)(?=(?!py)\w)", word)
        code.text = first
        for part in rest:
            SubElement(code, "wbr").tail = part


class Cells(Extension):
    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        md.treeprocessors.register(Breaking(md), "cells", 5)  # after inline patterns


def makeExtension(**options: object) -> Cells:  # noqa: N802
    return Cells(**options)

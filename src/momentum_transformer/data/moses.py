"""Moses tokenisation and its inverse, without escapes such as &apos;: they would only be undone again."""

import re
from collections.abc import Iterable
from typing import Any

from ..install import install_hint
from .folder import DataError


class Moses:
    """The rules of one language, named by its code; where Moses has none of its own for it, its general ones."""

    def __init__(self, language: str) -> None:
        sacremoses, _ = libraries()
        if re.fullmatch("[a-z]{2,3}", language) is None:
            raise DataError(f"a language is named by its code, such as en or de, not {language!r}")
        self._tokenizer = sacremoses.MosesTokenizer(language)
        self._detokenizer = sacremoses.MosesDetokenizer(language)

    def tokenize(self, line: str) -> str:
        """Tokens with spaces between."""
        try:
            line.encode()
        except UnicodeEncodeError as error:
            half = line[error.start]
            raise DataError(f"{half!r} at place {error.start + 1} of a line is half a character; remove it") from None
        return self._tokenizer.tokenize(line, return_str=True, escape=False)

    def tokenize_all(self, lines: Iterable[str]) -> list[str]:
        return [self.tokenize(line) for line in lines]

    def detokenize(self, tokens: str) -> str:
        """Text as people write it."""
        return self._detokenizer.detokenize(tokens.split(), unescape=False)


def libraries() -> tuple[Any, Any]:
    """sacremoses and sentencepiece; loaded late, because only translation needs them."""
    try:
        import sacremoses  # type: ignore[import-untyped]
        import sentencepiece
    except ModuleNotFoundError as error:
        raise DataError(f"translation needs {error.name}: {install_hint('translation')}") from None
    return sacremoses, sentencepiece

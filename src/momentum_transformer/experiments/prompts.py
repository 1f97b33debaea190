"""A prompt as the tokens of a text run, and its tokens as text that a terminal can show."""

import codecs
from collections.abc import Iterable, Iterator

from ..data.folder import DataError
from .configuration import ConfigurationError
from .text import TextTask


def prompt_tokens(task: TextTask, prompt: str) -> list[int]:
    """The prompt as tokens, at least one; an error names characters that the vocabulary does not have."""
    if not prompt:
        raise ConfigurationError("the prompt is empty: a model goes on from at least one character")
    try:
        return [int(token) for token in task.units.encode(prompt)]
    except DataError as error:
        raise ConfigurationError(str(error)) from None
    except UnicodeEncodeError:
        raise ConfigurationError("the prompt is not UTF-8") from None


def readable(tokens: Iterable[bytes]) -> Iterator[str]:
    """Text as soon as its characters are complete; control characters and invalid UTF-8 become a replacement mark."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for token in tokens:
        text = decoder.decode(token)
        yield "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)
    yield decoder.decode(b"", final=True)

"""A prompt as the tokens of a text run."""

from ..data.folder import DataError
from .configuration import ConfigurationError
from .text import TextTask


def prompt_tokens(task: TextTask, prompt: str) -> list[int]:
    """At least one token; what the vocabulary does not know is said."""
    if not prompt:
        raise ConfigurationError("the prompt is empty: a model goes on from at least one character")
    try:
        return [int(token) for token in task.units.encode(prompt)]
    except DataError as error:
        raise ConfigurationError(str(error)) from None
    except UnicodeEncodeError:
        raise ConfigurationError("the prompt is not UTF-8") from None

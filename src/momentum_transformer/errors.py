"""What a user is told when something that was given cannot be used."""

from collections.abc import Iterator
from contextlib import contextmanager

MOST_CHARACTERS = 1_000  # of a message
NO_MEMORY = ("allocate memory", "out of memory")  # what PyTorch's RuntimeErrors say, on CPUs and on GPUs


class UserError(Exception):
    """The message is for the user: one line that says what is wrong, where, and what to do."""


class CommandError(UserError):
    """What is wrong stands in the command itself, so that every process that runs it finds the same."""


@contextmanager
def memory_suffices() -> Iterator[None]:
    """What needs more memory than there is says so."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not any(words in str(error) for words in NO_MEMORY):
            raise
        raise UserError(
            "this needs more memory than there is; make the model or its batches smaller, "
            "with --set model.width, train.batch_size or others"
        ) from error


def one_line(error: BaseException | str) -> str:
    """The message on one line of bounded length; what no terminal should interpret is escaped."""
    text = str(error) or type(error).__name__
    if len(text) > MOST_CHARACTERS:
        text = f"{text[: MOST_CHARACTERS - 200]} … {text[-200:]}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)

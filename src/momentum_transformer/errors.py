"""What a user is told when something that was given cannot be used."""

MOST_CHARACTERS = 1_000  # of a message


class UserError(Exception):
    """The message is for the user: one line that says what is wrong, where, and what to do."""


def one_line(error: BaseException) -> str:
    """The message on one line of bounded length; what no terminal should interpret is escaped."""
    text = str(error) or type(error).__name__
    if len(text) > MOST_CHARACTERS:
        text = f"{text[: MOST_CHARACTERS - 200]} … {text[-200:]}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)

"""The live page: models complete pictures and translate text, in a browser on this machine."""

from ..errors import UserError


class ServeError(UserError):
    """The page cannot be served; the message is for the user."""

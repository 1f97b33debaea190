"""The live page: models complete pictures and translate text, in a browser on this machine."""


class ServeError(Exception):
    """The page cannot be served; the message is for the user."""

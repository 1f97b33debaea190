"""The live page: models complete a picture pixel by pixel, in a browser on this machine."""


class ServeError(Exception):
    """The page cannot be served; the message is for the user."""

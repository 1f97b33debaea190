"""The version, alone in a file so that packaging reads it without importing torch."""

__version__ = "0.2.0"

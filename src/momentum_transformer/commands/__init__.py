"""What each command of the `momentum` line does, one function for each kind of `options.Command`."""

from . import measuring, training, using
from .dispatch import run_command

__all__ = ["measuring", "run_command", "training", "using"]

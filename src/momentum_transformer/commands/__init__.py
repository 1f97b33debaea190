"""What each command of the `momentum` line does, one function for each kind of `options.Command`."""

from . import measure_commands, model_commands, run_commands
from .dispatch import run_command

__all__ = ["measure_commands", "model_commands", "run_command", "run_commands"]

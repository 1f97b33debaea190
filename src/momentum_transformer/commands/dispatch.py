"""A command by its kind, and where it speaks."""

import os
from functools import singledispatch
from typing import Any

from rich.console import Console

CONSOLE = Console(highlight=False, quiet=os.environ.get("RANK", "0") != "0")  # torchrun's first process speaks


@singledispatch
def run_command(command: Any) -> int:
    """Run a command; returns the exit code."""
    raise NotImplementedError(type(command).__name__)

"""Train, compare and sample momentum transformers; --version says which this is."""

import os
import sys
from typing import get_args

from .arguments import parse
from .errors import UserError, memory_suffices, one_line
from .options import Command
from .version import __version__


def main(arguments: list[str] | None = None) -> None:
    words = sys.argv[1:] if arguments is None else arguments
    if words == ["--version"]:
        print(f"momentum-transformer {__version__}")
        sys.exit(0)
    try:
        command: Command = parse(get_args(Command), words, description=__doc__ or "", check_subject=_check_subject)
        sys.exit(_run(command))
    except UserError as error:
        _say(error)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # whoever read the output has seen enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nor is there a complaint at the end
        sys.exit(141)
    except OSError as error:  # a name that no file can have, a full disk behind standard output
        _say(error)
        sys.exit(2)


def _check_subject(name: str, subject: str) -> None:
    from .commands.run_commands import check_subject

    check_subject(name, subject)


def _run(command: Command) -> int:
    from .commands import run_command

    try:
        with memory_suffices():
            return run_command(command)
    except UserError as error:
        _say(error)
        return 2


def _say(error: Exception) -> None:
    """On standard error; of processes that run the same command side by side, each says which it is."""
    who = f"rank {os.environ.get('RANK', '0')}: " if os.environ.get("WORLD_SIZE", "1") != "1" else ""
    print(f"momentum: {who}{one_line(error)}", file=sys.stderr)

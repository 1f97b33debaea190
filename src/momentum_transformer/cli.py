"""Train, compare and sample momentum transformers; --version says which this is."""

import io
import os
import sys
from typing import get_args

from .arguments import parse
from .errors import CommandError, UserError, memory_suffices, one_line
from .options import Command
from .version import __version__


def main(arguments: list[str] | None = None) -> None:
    words = sys.argv[1:] if arguments is None else arguments
    _make_output_safe()
    try:
        if words == ["--version"]:
            print(f"momentum-transformer {__version__}", flush=True)
            sys.exit(0)
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
        try:
            sys.stdout.flush()
        except OSError:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (for the flush at exit)
        sys.exit(2)


def _make_output_safe() -> None:
    """Output that is closed is that of nobody; what a terminal's encoding lacks is a question mark."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (as long as the process)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


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
    """On standard error; of processes that run the same command side by side, one says what all of them find, and each
    what happened to it alone.
    """
    rank, same = os.environ.get("RANK", "0"), isinstance(error, CommandError)
    if same and rank != "0":
        return
    who = f"rank {rank}: " if not same and os.environ.get("WORLD_SIZE", "1") != "1" else ""
    print(f"momentum: {who}{one_line(error)}", file=sys.stderr)

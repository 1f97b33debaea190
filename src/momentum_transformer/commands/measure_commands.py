"""The report of finished runs, and the times of attention."""

from .. import options
from ..experiments.configuration import ConfigurationError
from ..install import install_hint
from .dispatch import CONSOLE, run_command
from .places import need_file, need_folder


@run_command.register
def _(command: options.Report) -> int:
    try:
        from ..report.page import write_report
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"the report needs {error.name}: {install_hint('all')}") from None
    need_folder("--out", command.out)
    page, left_out = write_report(list(command.runs), command.out)
    for line in left_out:
        CONSOLE.print(f"left out: {line}", soft_wrap=True)
    CONSOLE.print(f"report: {page}", soft_wrap=True)
    return 0


@run_command.register
def _(command: options.Bench) -> int:
    from ..bench.command import run_bench

    need_file("--out", command.out)
    need_file("--plot", command.plot)
    run_bench(
        CONSOLE,
        shapes=command.shapes,
        backends=command.backends,
        peers=command.peers,
        threads=command.threads,
        out=command.out,
        plot=command.plot,
        quick=command.quick,
        family=command.family,
        transformers=command.transformers,
    )
    return 0

"""Runs side by side on a terminal: the bars are those of running runs, and each that has ended is one line."""

import io
from pathlib import Path

from rich.console import Console

from momentum_transformer.commands.watching import Watch
from momentum_transformer.experiments.runs import Request
from momentum_transformer.training.run_directory import RunDirectory


def test_a_run_that_has_ended_gives_its_place_to_those_that_run(tmp_path: Path) -> None:
    said = io.StringIO()
    console = Console(width=80, height=24, force_terminal=True, file=said, color_system=None)
    with Watch(console) as watch:
        assert watch.bar is not None
        for seed in range(30):
            request = Request("copy", "momentum-connection", "tiny", seed)
            run = RunDirectory(request.directory(tmp_path))
            with watch.running(request, run.path) as silent:
                assert silent
                assert [task.description for task in watch.bar.tasks] == [f"seed {seed} copy momentum-connection"]
                run.path.mkdir(parents=True)
                run.append_metrics({"kind": "train", "step": 7, "loss": 0.5})
        assert watch.bar.tasks == []
    lines = [line.split("\r")[-1].split("\x1b[2K")[-1].rstrip() for line in said.getvalue().splitlines()]
    steps = Request("copy", "momentum-connection", "tiny", 0).config.train.steps
    for seed in range(30):
        assert f"seed {seed} copy momentum-connection  step 7/{steps}  loss 0.5000" in lines

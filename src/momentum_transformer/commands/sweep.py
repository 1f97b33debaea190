"""A study for somebody else to run: one command a line, or an array job for Slurm."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ..experiments.study_runs import Plan, asked, at_rate, best_of, command, finished_in, runs_left


class Sweep(NamedTuple):
    """What a study has left."""

    commands: list[list[str]]  # that can run now, in any order
    notes: list[str]  # what is finished, has failed, or waits


def sweep(plan: Plan) -> Sweep:
    todo, done = runs_left(plan)
    now = [line for line in todo if not line[2]] or todo
    notes = [f"finished already: {len(done)} runs"] if done else []
    for _, run, _ in todo:
        if failure := run.damage() or run.failure():
            notes.append(f"failed: {run.path}: {failure}")
    waiting = len(todo) - len(now) + _unknown(plan)
    if waiting:
        notes.append(f"{waiting} more runs wait for these; ask again when they are finished")
    return Sweep([command(request, plan.runs, plan.data_dir) for request, _, _ in now], notes)


def _unknown(plan: Plan) -> int:
    """Further seeds of variants whose best learning rate is not known yet."""
    found, count = finished_in(plan.runs), 0
    for experiment, variant in plan.study.lines:
        first = asked(experiment, variant, plan.scale, plan.settings)
        tried = [at_rate(first, rate) for rate in variant.rates[: plan.rates]]
        count += plan.seeds - 1 if len(tried) > 1 and best_of(tried, found) is None else 0
    return count


def slurm_script(name: str, commands: Sequence[Sequence[str]]) -> str:
    """An array job: each task runs one command, saves before its time is up, and carries on when it is put back."""
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name=momentum-{name}",
        f"#SBATCH --array=0-{len(commands) - 1}",
        "#SBATCH --output=%x-%A_%a.log",
        "#SBATCH --open-mode=append",
        "#SBATCH --requeue",
        "#SBATCH --signal=B:TERM@120",
        f"cd {shlex.quote(str(Path.cwd()))} || exit 1",
        'export OMP_NUM_THREADS="${SLURM_CPUS_PER_TASK:-1}"',
        'case "$SLURM_ARRAY_TASK_ID" in',
    ]
    lines += [f"{i}) exec {shlex.join(words)} ;;" for i, words in enumerate(commands)]
    return "\n".join([*lines, "*) exit 2 ;;", "esac", ""])

"""From a request (experiment, model, scale, seed, settings) to a run directory, and back again."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..training.checkpoint import load_model
from ..training.distributed import join_world
from ..training.loop import evaluate, train
from ..training.run_directory import RunDirectory, RunError
from ..training.task import Task
from . import EXPERIMENTS
from .configuration import from_json, nearest, override, to_json


@dataclass(frozen=True)
class Request:
    experiment: str
    model: str
    scale: str = "small"
    seed: int = 0
    settings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.experiment not in EXPERIMENTS:
            raise nearest("experiment", self.experiment, list(EXPERIMENTS))
        if self.model not in EXPERIMENTS[self.experiment].models:
            raise nearest("model", self.model, EXPERIMENTS[self.experiment].models)

    @property
    def config(self) -> Any:
        return override(EXPERIMENTS[self.experiment].config(self.model, self.scale), self.settings)

    def directory(self, root: Path) -> Path:
        """runs/<experiment>/<model>/<scale>-seed<k>, with what was changed by --set behind it."""
        changed = "".join(f",{setting}" for setting in sorted(self.settings))
        return root / self.experiment / self.model / f"{self.scale}-seed{self.seed}{changed.replace('/', '_')}"


def run_training(request: Request, out: Path, *, resume: bool) -> bool:
    """Train in `out`; returns whether the last step was reached."""
    run = RunDirectory(out)
    config = request.config
    with join_world() as world:
        asked = {**to_json(request), "config": to_json(config)}
        if resume:
            stored = run.read("config.json")
            if any(stored.get(key) != value for key, value in asked.items()):
                raise RunError(f"{out} was started with other settings; resume it with the command in provenance.json")
        task = EXPERIMENTS[request.experiment].task(config, request.seed)
        if world.leads and not resume:
            run.create(asked)
        title = f"{request.experiment} {request.model}"
        return train(task, config.train, run=run, world=world, seed=request.seed, resume=resume, title=title)


def load_run(path: Path) -> tuple[Request, Any]:
    """What a run directory was asked to do."""
    stored = RunDirectory(path).read("config.json")
    try:
        request = Request(
            stored["experiment"], stored["model"], stored["scale"], stored["seed"], tuple(stored["settings"])
        )
        experiment = EXPERIMENTS[request.experiment]
        kind = type(experiment.config(request.model, request.scale))
        return request, from_json(kind, stored["config"])
    except KeyError as error:
        raise RunError(f"{path}/config.json has no {error}") from None


def load_task(path: Path, which: str = "best") -> tuple[Task, Request, Any]:
    """The task of a run with its trained weights, from its best or last checkpoint."""
    request, config = load_run(path)
    task = EXPERIMENTS[request.experiment].task(config, request.seed)
    run = RunDirectory(path)
    load_model(run.best if which == "best" else run.last, task.model)
    return task, request, config


def run_evaluation(path: Path, which: str) -> dict[str, float]:
    """Loss and metrics of a trained run on validation data it has not seen."""
    task, request, config = load_task(path, which)
    with join_world() as world:
        task.model.to(world.device)
        torch.manual_seed(request.seed)
        return evaluate(task, task.model, config.train, world, step=config.train.steps + 1)

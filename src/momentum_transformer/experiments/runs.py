"""From a request (experiment, model, scale, seed, settings) to a run directory, and back again."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from ..data.folder import data_root
from ..training.checkpoint import load_model, read_checkpoint
from ..training.distributed import World, join_world
from ..training.loop import evaluate, train
from ..training.run_directory import RunDirectory, RunError
from ..training.task import HasTest, KnowsItsRun, Task
from . import EXPERIMENTS
from .configuration import ConfigurationError, from_json, nearest, override, to_json
from .experiment import Experiment

LONGEST_NAME = 200  # bytes of what follows the seed in the name of a directory
SHOWN = 8  # metrics of the test split on the terminal; all are in metrics.jsonl


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
        changed = "".join(f",{setting}" for setting in sorted(self.settings)).replace("/", "_")
        if len(changed.encode()) > LONGEST_NAME:  # a path of one's own can be longer than a name may be
            changed = f",{hashlib.sha256(changed.encode()).hexdigest()[:16]}"
        return root / self.experiment / self.model / f"{self.scale}-seed{self.seed}{changed}"


def run_training(request: Request, out: Path, *, resume: bool, data_dir: Path | None = None) -> bool:
    """Train in `out`, then score the best checkpoint on the test split; returns whether the last step was reached."""
    run = RunDirectory(out)
    config = request.config
    with join_world() as world:
        if resume and load_run(out) != (request, config):  # what a newer version added has its default in older runs
            raise RunError(f"{out} was started with other settings; resume it with the command in provenance.json")
        task = make_task(request, config, run, data_root(data_dir, _remembered(run) if resume else None))
        if world.leads:
            task.prepare()
        world.any(False)  # one process downloads, the others wait and find the files
        origin = task.prepare()
        if world.leads and not resume:
            run.create({**to_json(request), "config": to_json(config)}, origin)
            if isinstance(task, KnowsItsRun):
                task.keep()
        title = f"{request.experiment} {request.model}"
        finished = train(task, config.train, run=run, world=world, seed=request.seed, resume=resume, title=title)
        if finished:
            _conclude(task, request, run, world)
            if world.leads:
                run.append_metrics({"kind": "concluded", "step": config.train.steps})
        return finished


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


def load_task(path: Path, which: str = "best", data_dir: Path | None = None) -> tuple[Task, Request, Any]:
    """The task of a run with its trained weights, from its best or last checkpoint. Its data is loaded when needed."""
    request, config = load_run(path)
    run = RunDirectory(path)
    task = make_task(request, config, run, data_root(data_dir, _remembered(run)))
    load_model(run.best if which == "best" else run.last, task.model)
    return task, request, config


def load_task_of(
    experiments: Sequence[Experiment], path: Path, which: str, *, cannot: str, data_dir: Path | None = None
) -> Task:
    """The trained task of a run of one of these experiments; of others, `cannot` says what they lack."""
    if which not in ("best", "last"):
        raise nearest("checkpoint", which, ("best", "last"))
    request, _ = load_run(path)
    known = [experiment.name for experiment in experiments]
    if request.experiment not in known:
        raise RunError(f"{path} is a run of {request.experiment}, which {cannot}; take a run of {', '.join(known)}")
    return load_task(path, which, data_dir)[0]


def run_evaluation(
    path: Path, which: str, *, split: str = "validation", data_dir: Path | None = None
) -> dict[str, float]:
    """Loss and metrics of a trained run: on validation data it has not seen, or on the test split, which is noted."""
    task, request, config = load_task(path, which, data_dir)
    if split not in ("validation", "test"):
        raise nearest("split", split, ("validation", "test"))
    if split == "test" and not isinstance(task, HasTest):
        raise RunError(f"{path} is a run of {request.experiment}, which has no test split")
    with join_world() as world:
        task.model.to(world.device)
        if split == "test":
            return _score_test(task, config, RunDirectory(path), world, which)
        torch.manual_seed(request.seed)
        batches = task.validation(config.train.steps + 1, world.rank, world.size)
        return evaluate(task, task.model, config.train, world, batches)


def make_task(request: Request, config: Any, run: RunDirectory, data_dir: Path) -> Task:
    try:
        task = EXPERIMENTS[request.experiment].task(config, request.seed, data_dir)
        if isinstance(task, KnowsItsRun):
            task.at(run.path)
        return task
    except ValueError as error:  # sizes that do not fit together
        raise ConfigurationError(str(error)) from None


def _conclude(task: Task, request: Request, run: RunDirectory, world: World) -> None:
    """The best checkpoint on the test split, and samples of it, where the experiment has such."""
    samples = EXPERIMENTS[request.experiment].samples
    if not isinstance(task, HasTest) and samples is None:
        return
    world.any(False)  # the best checkpoint is on disk when the leader comes here
    load_model(run.best, task.model)
    if isinstance(task, HasTest):
        metrics = _score_test(task, request.config, run, world, "best")
        shown = " ".join(f"{name} {value:.4f}" for name, value in list(metrics.items())[:SHOWN])
        more = f" and {len(metrics) - SHOWN} more in metrics.jsonl" if len(metrics) > SHOWN else ""
        Console(quiet=not world.leads).print(f"test split: {shown}{more}", highlight=False, soft_wrap=True)
    if samples is not None and world.leads:
        for line in samples(task, run.path / "samples"):
            run.append_metrics(line)


def _score_test(task: Task, config: Any, run: RunDirectory, world: World, which: str) -> dict[str, float]:
    assert isinstance(task, HasTest)
    metrics = evaluate(task, task.model, config.train, world, task.test(world.rank, world.size))
    if world.leads:
        _, progress = read_checkpoint(run.best if which == "best" else run.last)
        run.append_metrics({"kind": "test", "step": progress["step"], "checkpoint": which, **metrics})
    return metrics


def _remembered(run: RunDirectory) -> str | None:
    """Where the run found its data."""
    if not (run.path / "provenance.json").exists():
        return None
    directory = run.read("provenance.json").get("data", {}).get("directory")
    return None if directory is None else str(directory)

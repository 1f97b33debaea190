"""From a request (experiment, model, scale, seed, settings) to a run directory, and back again."""

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from ..data.folder import data_root
from ..errors import memory_suffices
from ..training.checkpoint import load_model, read_checkpoint
from ..training.distributed import World, join_world
from ..training.evaluation import evaluate
from ..training.loop import train
from ..training.progress import in_words
from ..training.provenance import provenance
from ..training.run_directory import RunDirectory, RunError
from ..training.task import HasTest, KnowsItsRun, Task
from . import EXPERIMENTS
from .configuration import ConfigurationError, from_json, nearest, override, paths, to_json
from .experiment import Experiment
from .origin import has_digest, refuse_other_data, remembered, stored_provenance
from .run_names import run_name
from .size_limits import check_batch, check_sizes

LARGEST_SEED = 10**9
INTERRUPTED = 130  # the exit code of a run that was stopped and saved
READ_ONLY = "the score of the test split is noted there: make it writable, or evaluate a copy of it"
SHOWN = 8  # metrics of the test split on the terminal; all are in metrics.jsonl


@dataclass(frozen=True)
class Request:
    experiment: str
    model: str
    scale: str = "small"
    seed: int = 0
    settings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        words = (self.experiment, self.model, self.scale, *self.settings)
        if not all(isinstance(word, str) for word in words) or type(self.seed) is not int:
            raise ConfigurationError("experiment, model, scale and settings are words, and the seed is a whole number")
        if abs(self.seed) > LARGEST_SEED:
            raise ConfigurationError(f"the seed must be at most {LARGEST_SEED:,}, not {self.seed}")
        if self.experiment not in EXPERIMENTS:
            raise nearest("experiment", self.experiment, list(EXPERIMENTS))
        if self.model not in EXPERIMENTS[self.experiment].models:
            raise nearest("model", self.model, EXPERIMENTS[self.experiment].models)

    @property
    def config(self) -> Any:
        config = EXPERIMENTS[self.experiment].config(self.model, self.scale)
        return override(config, self.settings, settings_of(self.experiment, self.scale)) if self.settings else config

    def directory(self, root: Path) -> Path:
        """runs/<experiment>/<model>/<scale>-seed<k>, with what was changed by --set behind it."""
        name = run_name(f"{self.scale}-seed{self.seed}", self.settings)
        return root / self.experiment / self.model / name


@cache
def settings_of(experiment: str, scale: str) -> dict[str, Any]:
    """Every setting that one of its models has, by path; where they differ, as the first of them has it."""
    found: dict[str, Any] = {}
    for model in EXPERIMENTS[experiment].models:
        for path, value in paths(EXPERIMENTS[experiment].config(model, scale)).items():
            found.setdefault(path, value)
    return found


def refuse_unused(requests: Sequence[Request]) -> None:
    """Refuse a setting that changes none of these models, such as `model.buckets` of one without hashing."""
    unused: dict[str, str] = {}
    used = set()
    for request in requests:
        config = request.config
        for path in (setting.partition("=")[0] for setting in request.settings):
            if path in paths(config):
                used.add(path)
            else:
                own = ", ".join(f"model.{name}" for name in config.model.own_settings()) or "none"
                unused[path] = f"{path} does nothing for {request.model}; settings of its own: {own}"
    for path, message in unused.items():
        if path not in used:
            raise ConfigurationError(message)


def train_words(request: Request, place: Sequence[str], data_dir: Path | None = None) -> list[str]:
    """The words after `momentum` that run a request in a place (--runs or --out), or carry it on."""
    words = ["train", request.experiment, "--model", request.model, "--scale", request.scale]
    words += ["--seed", str(request.seed), *(word for setting in request.settings for word in ("--set", setting))]
    return [*words, *place, *([] if data_dir is None else ["--data-dir", str(data_dir)]), "--resume"]


def run_training(request: Request, out: Path, *, resume: bool, data_dir: Path | None = None) -> bool:
    """Train in `out`, then score the best checkpoint on the test split; returns whether the last step was reached.

    With `resume`, a run that has begun is carried on, and one that has ended is left as it is.
    """
    run = RunDirectory(out)
    with join_world(request.config.train.context) as world, ExitStack() as owned:
        begun = _led(world, lambda: _has_begun(run, request, resume=resume))
        config = load_run(run.path)[1] if begun else request.config
        if _led(world, lambda: begun and run.surely_concluded(config.train.steps)):
            return True
        if config != request.config and world.leads:
            Console(highlight=False, soft_wrap=True, markup=False).print(
                f"{run.path} began when defaults were others, and goes on with {_changed(config, request)}"
            )
        check_batch(config, world.shards)
        task = make_task(request, config, run, data_root(data_dir, remembered(run) if begun else None))
        _led(world, lambda: bool(task.prepare()))  # one process downloads, the others wait and find the files
        origin = task.prepare()

        def own() -> bool:
            owned.enter_context(run.owned())
            owned.enter_context(run.failure_noted())
            if not _has_begun(
                run, request, resume=resume
            ):  # nor has another process finished it since the check above
                keep = task.keep if isinstance(task, KnowsItsRun) else lambda: None
                run.create({**to_json(request), "config": to_json(config)}, origin, keep)
            elif stored_provenance(run) is None:  # an older version was killed before it wrote this, or it is damaged
                run.write("provenance.json", provenance() | {"data": origin})
            else:
                refuse_other_data(run, origin)
            return True

        _led(world, own)
        title = f"{request.experiment} {request.model}"
        with memory_suffices():
            finished = train(task, config.train, run=run, world=world, seed=request.seed, title=title)
        if finished:
            if config.train.parallel == "fsdp":  # a model whose weights are in one place
                task = make_task(request, config, run, data_root(data_dir, remembered(run)))
                task.model.to(world.device)
                task.prepare()
            _conclude(task, run, world)
            if world.leads:
                run.append_metrics({"kind": "concluded", "step": config.train.steps})
                run.sync_logs()
        return finished


def experiment_of(path: Path) -> str:
    """The experiment of a run directory."""
    return str(RunDirectory(path).read("config.json").get("experiment"))


def _led(world: World, action: Callable[[], bool]) -> bool:
    """What the leading process finds, for all processes; where it fails, all end, and the leader's error says why."""
    found, failure = False, None
    if world.leads:
        try:
            found = action()
        except Exception as error:
            failure = error
    if world.any(failure is not None):
        raise failure or RunError("the leading process cannot go on; its message says why")
    return world.any(found)


def _has_begun(run: RunDirectory, request: Request, *, resume: bool) -> bool:
    """Whether there is a run to carry on; refuses one that is another run or must not be overwritten."""
    if not (resume and run.exists()):
        run.refuse_to_overwrite()
        return False
    if load_run(run.path)[0] != request:
        raise RunError(f"{run.path} was started with other settings; resume it with the command in provenance.json")
    return True


def _changed(config: Any, request: Request) -> str:
    """The settings of a run whose defaults have changed since it began."""
    now, then = paths(request.config), paths(config).items()
    return ", ".join(f"{path}={json.dumps(value)}" for path, value in then if value != now.get(path))


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
    except TypeError:
        raise RunError(f"{path}/config.json is damaged: settings are no list of words") from None


def load_task(path: Path, which: str = "best", data_dir: Path | None = None) -> tuple[Task, Request, Any]:
    """The task of a run with its trained weights, from its best or last checkpoint. Its data is loaded when needed."""
    request, config = load_run(path)
    run = RunDirectory(path)
    task = make_task(request, config, run, data_root(data_dir, remembered(run)))
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
        use = EXPERIMENTS[request.experiment].use
        own = f", or use this one: {use.replace('RUN', str(path))}" if use else ""
        others = ", ".join(known)
        raise RunError(f"{path} is a run of {request.experiment}, which {cannot}; take a run of {others}{own}")
    return load_task(path, which, data_dir)[0]


def run_evaluation(
    path: Path, which: str, *, split: str = "validation", data_dir: Path | None = None
) -> dict[str, float]:
    """Loss and metrics of a trained run: on validation data it has not seen, or on the test split, which is noted."""
    task, request, config = load_task(path, which, data_dir)
    run = RunDirectory(path)
    if split not in ("validation", "test"):
        raise nearest("split", split, ("validation", "test"))
    if split == "test" and not isinstance(task, HasTest):
        raise RunError(f"{path} is a run of {request.experiment}, which has no test split")
    if has_digest(run):
        refuse_other_data(run, task.prepare())
    with join_world() as world:
        task.model.to(world.device)
        if split == "test":
            with run.owned(READ_ONLY) if world.leads else nullcontext():
                return _score_test(task, config, run, world, which)
        torch.manual_seed(request.seed)
        batches = task.validation(config.train.steps + 1, world.rank, world.size)
        return evaluate(task, task.model, config.train, world, batches)


def make_task(request: Request, config: Any, run: RunDirectory, data_dir: Path) -> Task:
    check_sizes(config)
    try:
        with memory_suffices():
            task = EXPERIMENTS[request.experiment].task(config, request.seed, data_dir)
        if isinstance(task, KnowsItsRun):
            task.at(run.path)
        return task
    except ValueError as error:  # sizes that do not fit together
        raise ConfigurationError(str(error)) from None


def _conclude(task: Task, run: RunDirectory, world: World) -> None:
    """The best checkpoint on the test split, and samples of it, where the experiment has such."""
    request, config = load_run(run.path)
    samples = EXPERIMENTS[request.experiment].samples
    if not isinstance(task, HasTest) and samples is None:
        return
    world.any(False)  # the best checkpoint is on disk when the leader comes here
    load_model(run.best, task.model)
    torch.manual_seed(request.seed)  # the same random numbers whether this process has trained or only scores
    if isinstance(task, HasTest):
        metrics = _score_test(task, config, run, world, "best")
        more = f" and {len(metrics) - SHOWN} more in metrics.jsonl" if len(metrics) > SHOWN else ""
        console = Console(quiet=not world.leads)
        columns = console.width if console.is_terminal else sys.maxsize
        shown = in_words("test split", dict(list(metrics.items())[:SHOWN]), columns, more)
        console.print(shown, highlight=False, soft_wrap=True)
    if samples is not None and world.leads:
        try:
            lines = samples(task, run.path / "samples")
        except OSError as error:
            raise RunError(f"{run.path}/samples cannot be written: {error}") from None
        for line in lines:
            run.append_metrics(line)


def _score_test(task: Task, config: Any, run: RunDirectory, world: World, which: str) -> dict[str, float]:
    assert isinstance(task, HasTest)
    metrics = evaluate(task, task.model, config.train, world, task.test(world.shard, world.shards))
    if world.leads:
        _, progress = read_checkpoint(run.best if which == "best" else run.last)
        run.append_metrics({"kind": "test", "step": progress.get("step", 0), "checkpoint": which, **metrics})
    return metrics

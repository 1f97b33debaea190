"""From run directories to models the page can show."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ..experiments.configuration import ConfigurationError
from ..experiments.drawing import load_picture_task
from ..experiments.models import MODELS
from ..experiments.pictures import PICTURES, PictureTask
from ..experiments.runs import Request, load_run
from ..generation.pixels import trace
from ..models.logistic_mixture import mixture_log_likelihood
from ..models.pixel_model import PixelModel
from ..ops.state import state_bytes
from ..training.checkpoint import CheckpointError
from ..training.run_directory import RunError, find_runs
from .models import Picture, Step

EXAMPLES = 12
UNUSABLE = (CheckpointError, ConfigurationError, RunError)


@dataclass(frozen=True)
class TrainedModel:
    """A trained pixel model; `Drawable` says what its parts mean."""

    name: str
    subject: str
    picture: Picture
    momentum: tuple[float, float] | None
    model: PixelModel
    test_images: tuple[bytes, ...]

    def examples(self) -> Sequence[bytes]:
        return self.test_images

    def given_bits(self, given: bytes) -> float:
        pixels = _tensor(given)
        with torch.inference_mode():
            return float(-mixture_log_likelihood(self.model(pixels), pixels).sum()) / math.log(2)

    def draw(self, given: bytes, *, temperature: float, seed: int) -> Iterator[Step]:
        drawing = trace(self.model, count=1, given=_tensor(given), temperature=temperature, seed=seed)
        before = time.perf_counter()
        for pixel, parameters, state in drawing:
            seconds = time.perf_counter() - before
            with torch.inference_mode():
                bits = float(-mixture_log_likelihood(parameters, pixel)) / math.log(2)
            yield Step(int(pixel), bits, state_bytes(state), seconds)
            before = time.perf_counter()


def load_models(paths: Sequence[Path], data_dir: Path | None = None) -> tuple[list[TrainedModel], list[str]]:
    """The models of run directories, or of all below a folder; and a line for each thing that is missing.

    A run that was named must be usable. Below a folder, runs that are not are left out.
    """
    tasks: dict[Path, tuple[Request, PictureTask]] = {}
    missing: list[str] = []
    for path in paths:
        if not path.exists():
            raise RunError(f"there is no {path}")
        if (path / "config.json").exists():
            tasks[path.resolve()] = _load(path, data_dir)
            continue
        for run in _below(path, missing):
            try:
                tasks[run.resolve()] = _load(run, data_dir)
            except UNUSABLE as error:
                missing.append(f"left out: {error}")
    if not tasks:
        reason = f" ({missing[0]})" if missing else ""
        places = ", ".join(map(str, paths))
        raise RunError(f"no trained run that draws pictures in {places}{reason}; make one: momentum train digits")
    images: dict[str, tuple[bytes, ...]] = {}
    for request, task in tasks.values():
        subject = _subject(request, task)
        if subject not in images:
            found, reason = task.examples(EXAMPLES)
            images[subject] = tuple(bytes(image.tolist()) for image in found)
            if reason:
                missing.append(f"no test images of {subject}: {reason}")
    names = _names(tasks)
    models = [
        TrainedModel(
            name,
            _subject(request, task),
            Picture(task.shape[1], task.shape[0], task.shape[2]),
            _momentum(task),
            task.pixel_model.eval(),
            images[_subject(request, task)],
        )
        for name, (request, task) in zip(names, tasks.values(), strict=True)
    ]
    return models, missing


def _load(path: Path, data_dir: Path | None) -> tuple[Request, PictureTask]:
    return load_run(path)[0], load_picture_task(path, "best", data_dir)


def _below(folder: Path, missing: list[str]) -> list[Path]:
    """Runs that draw pictures, in the order of the paper's tables; `missing` hears of the others."""
    experiments = [experiment.name for experiment in PICTURES]
    found = []
    others = 0
    for run in find_runs(folder):
        try:
            request, _ = load_run(run.path)
        except UNUSABLE as error:
            missing.append(f"left out: {error}")
            continue
        if request.experiment in experiments:
            order = experiments.index(request.experiment), MODELS.index(request.model)
            found.append((order, run.path))
        else:
            others += 1
    if others:
        missing.append(f"left out: {others} of the runs in {folder} draw no pictures")
    return [path for _, path in sorted(found)]


def _subject(request: Request, task: PictureTask) -> str:
    height, width, _ = task.shape
    return f"{request.experiment}, {width} × {height}"


def _names(tasks: dict[Path, tuple[Request, PictureTask]]) -> list[str]:
    """The model's name, with what tells it from others of the same name behind it."""
    parts = {path: (request.scale, f"seed{request.seed}", *request.settings) for path, (request, _) in tasks.items()}
    names = []
    for path, (request, task) in tasks.items():
        peers = [
            parts[other]
            for other, (asked, kind) in tasks.items()
            if (asked.model, _subject(asked, kind)) == (request.model, _subject(request, task))
        ]
        own = [part for part in parts[path] if any(part not in peer for peer in peers)]
        own += [str(path)] if peers.count(parts[path]) > 1 else []
        names.append(" ".join([request.model, *own]))
    return names


def _momentum(task: PictureTask) -> tuple[float, float] | None:
    model = task.config.model
    return (model.beta, model.gamma) if (model.attention, model.weighting) == ("momentum", "relative") else None


def _tensor(values: bytes) -> Tensor:
    return torch.tensor(list(values), dtype=torch.uint8)[None]

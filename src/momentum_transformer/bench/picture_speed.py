"""Images per second of every picture model, drawn byte by byte on this machine.

    python -m momentum_transformer.bench.picture_speed --out results/generation.json
    python -m momentum_transformer.bench.picture_speed --models linear momentum --out results/decoding.json
    python -m momentum_transformer.bench.picture_speed --runs runs/mnist  # trained runs, noted in their metrics.jsonl

Softmax is measured twice: with a key-value cache, which is what everyone runs, and recomputing the prefix for every
byte, which is the paper's baseline. Both get slower along the picture, so both are timed at several places of it and
added up by the trapezoidal rule; the others take the same time everywhere. Everything is interleaved, the best of
several rounds counts, and nothing is timed unless parallel and recurrent likelihoods agree. Beside them stand the bare
matrix multiplications of a byte ("matrices") and, where it is installed, the recurrent encoder of fast-transformers
with linear attention ("peer"). Everything is timed with one thread and with as many as PyTorch has.
"""

import argparse
import gc
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..experiments.pictures.picture_task import PICTURE_MODELS, PictureTask
from ..experiments.runs import Request, load_run, load_task
from ..generation.pixels import Stepper
from ..models.encoder import EncoderState
from ..models.logistic_mixture import mixture_log_likelihood, sample_mixture
from ..models.pixel_model import PixelModel, PixelModelState
from ..ops.state import CacheState, state_tensors
from ..training.run_directory import RunDirectory, find_runs
from .picture_yardsticks import matrices, peer
from .record import record, save

BATCHES = (1, 8, 64)
MEMBERS = ("gated-delta", "momentum-delta")  # of the family, beside the paper's models
BARE = ("linear", *MEMBERS)  # whose matrix multiplications are timed alone; the paper's models share those of linear
PLACES = 5  # along the picture
STEPS = 4  # timed in a row


class Subject(NamedTuple):
    """What is timed: one model, one way to draw, one batch, so many threads."""

    name: str
    model: PixelModel
    method: str
    batch: int
    run: RunDirectory | None
    threads: int

    def places(self) -> list[int]:
        last = self.model.length - STEPS - 1
        return [0] if self.method not in ("cache", "recompute") else [i * last // (PLACES - 1) for i in range(PLACES)]


def check(model: PixelModel) -> None:
    """The recurrent form is the parallel one, or nothing is timed."""
    images = torch.randint(0, 256, (2, min(model.length, 64)), dtype=torch.uint8)
    state = model.initial_state(2)
    steps = []
    for i in range(images.shape[1]):
        parameters, state = model.step(None if i == 0 else images[:, i - 1], state)
        steps.append(mixture_log_likelihood(parameters, images[:, i]))
    parallel = mixture_log_likelihood(model(images), images)
    if not torch.allclose(torch.stack(steps, 1), parallel, rtol=1e-3, atol=1e-3):
        raise SystemExit("the recurrent form does not equal the parallel one; nothing was timed")


def state_at(model: PixelModel, batch: int, place: int, method: str) -> PixelModelState:
    """A state as it is at that place. A cache is full of ones: its size decides the time, not its content."""
    state = model.initial_state(batch)
    if method != "cache":
        return state
    layers = []
    for layer in state.encoder.layers:
        heads, width = layer.k.shape[1], layer.k.shape[3]
        k, v = torch.ones(2, batch, heads, place, width)
        layers.append(CacheState(k, v, torch.ones(batch, place, dtype=torch.bool)))
    return PixelModelState(EncoderState(tuple(layers)), torch.full_like(state.position, place))


@torch.inference_mode()
def seconds_per_byte(subject: Subject, place: int) -> float:
    """One byte of each picture in the batch, sampled."""
    model, batch = subject.model, subject.batch
    uniform = torch.rand(batch, 2)
    pixel = torch.zeros(batch, dtype=torch.uint8)
    if subject.method == "recompute":
        prefix = torch.zeros(batch, place + 1, dtype=torch.uint8)
        start = time.perf_counter()
        sample_mixture(model(prefix)[:, -1], uniform)
        return time.perf_counter() - start
    if subject.method == "matrices":
        multiply = matrices(model, batch)
        multiply()
        start = time.perf_counter()
        for _ in range(STEPS):
            multiply()
        return (time.perf_counter() - start) / STEPS
    if subject.method == "peer":
        step = peer(model, batch)
    else:
        step = Stepper(model, state_at(model, batch, place, subject.method)).step
    step(pixel)
    start = time.perf_counter()
    for _ in range(STEPS):
        pixel = sample_mixture(step(pixel), uniform)
    return (time.perf_counter() - start) / STEPS


def bytes_kept(subject: Subject) -> int:
    """What has to be kept between two bytes, for each picture, at the end of it."""
    if subject.method == "recompute":
        return subject.model.length  # the bytes drawn so far
    state = state_at(subject.model, 1, subject.model.length, subject.method)
    return sum(tensor.numel() * tensor.element_size() for tensor in state_tensors(state).values())


def memory_per_image(subject: Subject) -> int:
    """What one more picture in the batch takes while it is drawn: states, caches, buffers and what comes and goes."""
    few, many = 4, 8
    more = peak_bytes(subject._replace(batch=many)) - peak_bytes(subject._replace(batch=few))
    return more // (many - few)


@torch.inference_mode()
def peak_bytes(subject: Subject) -> int:
    """Of the tensors that drawing makes, the most that are there at once."""
    model, batch = subject.model, subject.batch
    pixel = torch.zeros(batch, dtype=torch.uint8)
    prefix = torch.zeros(batch, model.length, dtype=torch.uint8)
    state = model.initial_state(batch)
    theirs = peer(model, batch) if subject.method == "peer" else None
    gc.collect()  # nothing that was made before is freed meanwhile
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        if subject.method == "recompute":
            kept: Any = model(prefix)
        else:
            step = theirs or Stepper(model, state).step
            kept = step(pixel), step(pixel)
    del kept
    assert profile.profiler is not None
    changes = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    now = most = 0
    for event in sorted(changes, key=lambda event: event.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most


def row(subject: Subject, best: dict[int, float]) -> dict[str, Any]:
    places = subject.places()
    times = [best[place] for place in places]
    if len(times) > 1:
        pieces = zip(places, places[1:], times, times[1:], strict=False)
        mean = sum((right - left) * (a + b) / 2 for left, right, a, b in pieces) / (places[-1] - places[0])
    else:
        mean = times[0]
    return {
        "kind": "throughput",
        "model": subject.name,
        "method": subject.method,
        "batch": subject.batch,
        "threads": subject.threads,
        "images_per_second": float(f"{subject.batch / (mean * subject.model.length):.4g}"),
        "milliseconds_per_byte": round(1000 * mean, 3),
        "bytes_per_image": 0 if subject.method == "matrices" else bytes_kept(subject),
        "memory_per_image": 0 if subject.method == "matrices" else memory_per_image(subject),
        "extrapolated_from_places": places,
    }


def subjects(
    models: list[tuple[str, PixelModel, RunDirectory | None]], batches: list[int], threads: list[int]
) -> list[Subject]:
    found = []
    for name, model, run in models:
        softmax = isinstance(model.initial_state(1).encoder.layers[0], CacheState)
        methods = ["cache" if softmax else "recurrent"]
        methods += ["matrices"] if name in BARE else []
        methods += ["peer"] if name == "linear" and find_spec("fast_transformers") else []
        found += [
            Subject(name, model, x, batch, run, count) for count in threads for x in methods for batch in batches
        ]
        if softmax:
            found.append(Subject(name, model, "recompute", 1, run, max(threads)))
    return found


def untrained(
    experiment: str, scale: str, names: Sequence[str] = (*PICTURE_MODELS, *MEMBERS)
) -> list[tuple[str, PixelModel, RunDirectory | None]]:
    made: list[tuple[str, PixelModel, RunDirectory | None]] = []
    for name in names:
        task = PictureTask(experiment, Request(experiment, name, scale).config, 0)
        made.append((name, task.pixel_model.eval(), None))
    return made


def trained(root: Path) -> list[tuple[str, PixelModel, RunDirectory | None]]:
    found: list[tuple[str, PixelModel, RunDirectory | None]] = []
    for run in find_runs(root):
        if run.finished() and load_run(run.path)[0].seed == 0:
            task, request, _ = load_task(run.path)
            if isinstance(task, PictureTask):
                found.append((request.model, task.pixel_model.eval(), run))
    if not found:
        raise SystemExit(f"no finished picture run with seed 0 in {root}")
    return found


def measure(found: list[Subject], rounds: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    best: list[dict[int, float]] = [{} for _ in found]
    for number in range(rounds + 1):  # the first one warms up
        for subject, times in zip(found, best, strict=True):
            torch.set_num_threads(subject.threads)
            for place in subject.places():
                seconds = seconds_per_byte(subject, place)
                if number:
                    times[place] = min(times.get(place, seconds), seconds)
        say(f"round {number} of {rounds}")
    return [row(subject, times) for subject, times in zip(found, best, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the figures there as JSON")
    parser.add_argument("--runs", type=Path, help="measure the trained runs below this folder, and note it in them")
    parser.add_argument("--experiment", default="mnist")
    parser.add_argument("--scale", default="paper")
    parser.add_argument("--models", nargs="+", default=[*PICTURE_MODELS, *MEMBERS], help="of untrained models, which")
    parser.add_argument("--batches", type=int, nargs="+", default=list(BATCHES))
    parser.add_argument("--threads", type=int, nargs="+", default=[1, torch.get_num_threads()])
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    models = trained(arguments.runs) if arguments.runs else None
    models = models or untrained(arguments.experiment, arguments.scale, arguments.models)
    with torch.inference_mode():
        for _, model, _ in models:
            check(model)
    found = subjects(models, arguments.batches, sorted(set(arguments.threads)))
    rows = measure(found, arguments.rounds, print)
    for subject, line in zip(found, rows, strict=True):
        if subject.run is not None and subject.method not in ("matrices", "peer"):
            subject.run.append_metrics(line)
        print(
            f"{line['model']:>20} {line['method']:>10} batch {line['batch']:>3}, {line['threads']} threads: "
            f"{line['images_per_second']:8.4g} "
            f"images/s, {line['milliseconds_per_byte']:8.2f} ms a byte, {line['bytes_per_image']:>12,} bytes an image"
        )
    what = str(arguments.runs) if arguments.runs else f"{arguments.experiment} at scale {arguments.scale}, untrained"
    what = f"{what}; {models[0][1].length} bytes a picture, float32"
    meaning = f"best of {arguments.rounds} interleaved rounds of {STEPS} bytes; softmax from {PLACES} places"
    save(record("picture_speed", what, meaning, rows), arguments.out)


if __name__ == "__main__":
    main()

"""The training loop, for every task: it knows no model and no data.

Data order and random numbers are functions of (seed, step), so a checkpoint is weights, moments and counters, and
carrying on from it is bit-identical to never having stopped.
"""

import math
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .checkpoint import load_model, load_optimizer, save_checkpoint
from .config import TrainConfig
from .distributed import World
from .optimizers import betas, clip_gradients, learning_rate, make_optimizer
from .progress import Progress
from .recorder import Recorder
from .run_directory import RunDirectory, machine_load
from .task import Condenses, Task


class TrainingError(Exception):
    """Training that cannot go on; the message is for the user."""


@dataclass
class Counters:
    """What is saved beside weights and moments."""

    step: int = 0
    seconds: float = 0.0  # spent in training steps, evaluation and saving left out
    # of them, those that this process had a core, all of its threads together; None where they were not always counted
    cpu_seconds: float | None = 0.0
    best_score: float = math.inf  # of the validation data; lower is better
    best_step: int = 0


def train(
    task: Task, config: TrainConfig, *, run: RunDirectory, world: World, seed: int, resume: bool, title: str
) -> bool:
    """Train until the last step or an interruption; returns whether the last step was reached."""
    model = task.model.to(world.device)
    optimizer = make_optimizer(model.parameters(), config)
    counters = _resumed(model, optimizer, run, world) if resume else Counters()
    scaler = torch.amp.GradScaler(world.device.type, enabled=_precision(config, world) == "float16")
    wrapped = world.wrap(model)
    if config.compile:
        wrapped = torch.compile(wrapped)  # type: ignore[assignment]

    with (
        Progress(title, config.steps, counters.step, leads=world.leads) as progress,
        _interruptible() as interrupted,
    ):
        recorder = Recorder(run, leads=world.leads, resumed_at=counters.step)
        if counters.step == 0:
            _evaluate(task, model, config, world, counters, recorder, progress)
            if world.leads:
                save_checkpoint(run.best, model, None, vars(counters))
        recent: list[Tensor] = []
        started, cpu_started = time.perf_counter(), time.process_time()
        logged_at = (counters.step, counters.seconds)
        while counters.step < config.steps:
            recent.append(_step(task, wrapped, optimizer, scaler, config, world, seed, counters.step))
            counters.step += 1
            now = counters.step
            last = now == config.steps
            stop = world.any(interrupted.is_set) if world.size > 1 else interrupted.is_set
            due_log = now % config.log_every == 0 or last or stop
            due_evaluation = now % config.evaluate_every == 0 or last
            due_save = now % config.save_every == 0 or last or stop
            if not (due_log or due_evaluation or due_save):
                continue
            losses = world.sum(torch.stack(recent)).tolist()
            counters.seconds += time.perf_counter() - started
            if counters.cpu_seconds is not None:
                counters.cpu_seconds += time.process_time() - cpu_started
            _refuse_nan(losses, now - len(losses), run)
            if due_log:
                steps, seconds = now - logged_at[0], counters.seconds - logged_at[1]
                line = {
                    "loss": sum(losses) / len(losses),
                    "learning_rate": learning_rate(now - 1, config),
                    "tokens_per_second": steps * task.tokens_per_step() / seconds if seconds else None,
                    "seconds": counters.seconds,
                }
                recorder.write("train", now, line)
                progress.log(now, line)
                logged_at, recent = (now, counters.seconds), []
            best = due_evaluation and _evaluate(task, model, config, world, counters, recorder, progress)
            if best and world.leads:
                save_checkpoint(run.best, model, None, vars(counters))
            if due_save and world.leads:
                save_checkpoint(run.last, model, optimizer, vars(counters))
            if stop:
                return False
            started, cpu_started = time.perf_counter(), time.process_time()
        end = {"seconds": counters.seconds, "cpu_seconds": counters.cpu_seconds, "best_step": counters.best_step}
        recorder.write("end", counters.step, {**end, "load": machine_load()})
        recorder.close()
    return True


def _resumed(model: nn.Module, optimizer: torch.optim.Optimizer, run: RunDirectory, world: World) -> Counters:
    """The last checkpoint, with the metrics that came after it taken back."""
    counters = Counters(**{"cpu_seconds": None, **load_model(run.last, model)})
    load_optimizer(run.last, optimizer)
    if world.leads:
        run.forget_metrics_after(counters.step)
    return counters


def _step(
    task: Task,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    config: TrainConfig,
    world: World,
    seed: int,
    step: int,
) -> Tensor:
    """One optimizer step on one global batch; returns this process's part of the mean loss."""
    torch.manual_seed(_mix(seed, step, world.rank))
    for group in optimizer.param_groups:
        group["lr"], group["betas"] = learning_rate(step, config), betas(step, config)
    shards = world.size * config.accumulate
    batches = [task.batch(step, world.rank * config.accumulate + i, shards) for i in range(config.accumulate)]
    count = world.sum(torch.stack([task.count(batch).to(world.device, torch.float32) for batch in batches]).sum())
    optimizer.zero_grad(set_to_none=True)
    total = torch.zeros((), device=world.device)
    for i, batch in enumerate(batches):
        with _last_sync_only(model, i == len(batches) - 1):
            with _autocast(config, world):
                loss = task.score(model, batch).loss / count
            # data parallelism averages gradients over processes, and the count is that of all of them
            scaler.scale(loss * world.size).backward()
        total += loss.detach()
    scaler.unscale_(optimizer)
    clip_gradients(model.parameters(), config)
    scaler.step(optimizer)
    scaler.update()
    return total


def evaluate(
    task: Task, model: nn.Module, config: TrainConfig, world: World, batches: Iterable[Any]
) -> dict[str, float]:
    """Mean loss and metrics over this process's share of validation or test data, and everyone else's."""
    was_training = model.training
    model.eval()
    totals: dict[str, tuple[Tensor, Tensor]] = {}  # metric → its sum and count
    with torch.no_grad(), _autocast(config, world):
        for batch in batches:
            score = task.score(model, batch)
            for name, value in {"loss": score.loss, **score.sums}.items():
                total, count = totals.get(name, (0.0, 0.0))
                totals[name] = total + value.double(), count + score.counts.get(name, score.count).double()
    model.train(was_training)
    if not totals:
        raise TrainingError("there is no data to evaluate on")
    means = {name: world.sum(total) / world.sum(count) for name, (total, count) in totals.items()}
    condensed = task.condense(means) if isinstance(task, Condenses) else means
    return {name: float(mean) for name, mean in condensed.items()}


def _evaluate(
    task: Task,
    model: nn.Module,
    config: TrainConfig,
    world: World,
    counters: Counters,
    recorder: Recorder,
    progress: Progress,
) -> bool:
    """Evaluate, write it down, and say whether it is the best so far."""
    batches = task.validation(counters.step, world.rank, world.size)
    metrics = evaluate(task, model, config, world, batches)
    spent = {"seconds": counters.seconds, "cpu_seconds": counters.cpu_seconds}
    recorder.write("validation", counters.step, {**metrics, **spent})
    progress.validated(counters.step, metrics)
    score = metrics["loss"] if config.select == "loss" else -metrics[config.select]
    if not score < counters.best_score:
        return False
    counters.best_score, counters.best_step = score, counters.step
    return True


def _refuse_nan(losses: list[float], before: int, run: RunDirectory) -> None:
    for i, loss in enumerate(losses, start=1):
        if not math.isfinite(loss):
            kept = f"the last good checkpoint is {run.last}" if run.last.exists() else "nothing had been saved yet"
            raise TrainingError(
                f"the loss became {loss} at step {before + i}; {kept}. "
                "Try a smaller train.learning_rate, or train.precision=float32"
            )


def _autocast(config: TrainConfig, world: World) -> AbstractContextManager[Any]:
    precision = _precision(config, world)
    if precision == "float32":
        return nullcontext()
    return torch.autocast(world.device.type, getattr(torch, precision))


def _precision(config: TrainConfig, world: World) -> str:
    if config.precision != "mixed":
        return config.precision
    return "float16" if world.device.type == "cuda" else "float32"


def _last_sync_only(model: nn.Module, last: bool) -> AbstractContextManager[Any]:
    """Gradients travel between processes once a step, not once a micro-batch."""
    no_sync = getattr(model, "no_sync", None)
    return nullcontext() if last or no_sync is None else no_sync()


def _mix(seed: int, step: int, rank: int) -> int:
    """One 63-bit seed from three numbers, well spread even where they are small."""
    mixed = seed
    for number in (step, rank):
        mixed = (mixed * 6364136223846793005 + number + 1442695040888963407) % 2**63
    return mixed


class _Interruption:
    is_set = False


@contextmanager
def _interruptible() -> Iterator[_Interruption]:
    """Ctrl-C lets the current step finish, so that there is something whole to save; a second one stops at once."""
    flag = _Interruption()

    def handler(number: int, frame: Any) -> None:
        if flag.is_set:
            raise KeyboardInterrupt
        flag.is_set = True

    try:
        before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: leave signals alone
        yield flag
        return
    try:
        yield flag
    finally:
        for number, old in before.items():
            signal.signal(number, old)

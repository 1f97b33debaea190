"""The training loop, for every task: it knows no model and no data.

Data order and random numbers are functions of (seed, step), so a checkpoint is weights, moments and counters, and
carrying on from it is bit-identical to never having stopped.
"""

import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn

from ..errors import UserError
from .checkpoint import load_model, load_optimizer, save_checkpoint
from .config import TrainConfig
from .counters import Counters, counters_of
from .distributed import World, last_sync_only
from .evaluation import DroppedError, evaluate, part, until_interrupted
from .interruption import Interruption, interruptible
from .metrics_recorder import Recorder
from .optimizers import betas, clip_gradients, learning_rate, make_optimizer
from .precision import autocast, precision_of
from .progress import Progress
from .provenance import machine_load
from .run_directory import RunDirectory
from .sharded import load_shards, newest, refuse_to_split, save_shards, shard, whole, whole_weights
from .task import Task, WritesSamples


class TrainingError(UserError):
    """Training that cannot go on; the message is for the user."""


def train(task: Task, config: TrainConfig, *, run: RunDirectory, world: World, seed: int, title: str) -> bool:
    """Train from the last checkpoint, or from step 0 where there is none, until the last step or an interruption.

    Returns whether the last step was reached.
    """
    refuse_to_split(task, config, world)
    model = task.model.to(world.device)
    wrapped, sharded = _spread(model, config, world), config.parallel == "fsdp"
    optimizer = make_optimizer(model.parameters(), config)
    scaler = torch.amp.GradScaler(world.device.type, enabled=precision_of(config, world) == "float16")
    resume = world.any(world.leads and bool(newest(run.shards) if sharded else run.last.exists()))
    counters = _resumed(model, optimizer, scaler, config, run, world, sharded=sharded) if resume else Counters()
    if world.leads:
        _forget_later(run, config, counters if resume else None)

    with (
        Progress(title, config.steps, counters.step, leads=world.leads) as progress,
        Recorder(run, leads=world.leads, resumed_at=counters.step) as recorder,
        interruptible() as interrupted,
    ):
        save = _saver(run, model, counters, scaler, recorder, world, sharded=sharded)
        measured = (task, model, config, world, counters, recorder, progress, interrupted, seed)
        evaluate_now = partial(_evaluate, *measured, partial(save, run.best))
        if not resume or counters.unevaluated:
            evaluated = evaluate_now()
            # after the last step no later one saves this; shards of it stay, and `run.last` is written below
            if not resume or (counters.step == config.steps and not sharded):
                save(run.last, optimizer)
            if not evaluated:
                return False
        recent: list[Tensor] = []  # this process's part of the losses that are not in `counters` yet
        started, cpu_started = time.perf_counter(), time.process_time()
        while counters.step < config.steps:
            recent.append(_step(task, wrapped, optimizer, scaler, config, world, seed, counters.step))
            counters.step += 1
            now, last = counters.step, counters.step == config.steps
            stop = world.any(interrupted.is_set)
            due_log = now % config.log_every == 0 or last
            due_evaluation = now % config.evaluate_every == 0 or last
            due_save = now % config.save_every == 0 or last or stop
            if not (due_log or due_evaluation or due_save):
                continue
            losses, recent = world.sum(torch.stack(recent)).tolist(), []
            counters.seconds += time.perf_counter() - started
            if counters.cpu_seconds is not None:
                counters.cpu_seconds += time.process_time() - cpu_started
            _refuse_nan(losses, now - len(losses), run)
            counters.losses += losses
            if due_log:
                line = _logged(counters, config, task.tokens_per_step())
                recorder.write("train", now, line)
                progress.log(now, line)
            stop = (due_evaluation and not evaluate_now()) or stop
            if due_save or stop:
                save(run.last, optimizer)
            if stop:
                return False
            started, cpu_started = time.perf_counter(), time.process_time()
        if sharded:
            save(run.last)  # as one file, for all that reads weights
        end = {name: getattr(counters, name) for name in ("seconds", "cpu_seconds", "best_step")}
        recorder.write("end", counters.step, {**end, "load": machine_load()})
        recorder.sync()
    return True


def _forget_later(run: RunDirectory, config: TrainConfig, counters: Counters | None) -> None:
    """Drop the metrics after a checkpoint with these counters; without one, a run that had metrics begins again."""
    reached, due = {"train": -1, "validation": -1}, {}
    if counters is not None:
        reached = {"train": counters.step, "validation": counters.step - counters.unevaluated}
        every = {"train": config.log_every, "validation": config.evaluate_every}
        due = {kind: at if at == config.steps else at - at % every[kind] for kind, at in reached.items()}
        due["train"] = due["train"] or -1  # unlike evaluations, none is before the first step
    forgotten = run.forget_metrics_after(reached, due)
    if counters is None and forgotten:
        Console(highlight=False, soft_wrap=True, markup=False).print(
            f"{run.path} has metrics but no checkpoint to carry on from: they are dropped, and it begins again"
        )


def _spread(model: nn.Module, config: TrainConfig, world: World) -> nn.Module:
    """The model as this process trains it, among all of them."""
    if config.parallel == "fsdp":
        return shard(model, world)
    replicated = world.replicate(model)
    return torch.compile(replicated) if config.compile else replicated  # type: ignore[return-value]


def _saver(
    run: RunDirectory,
    model: nn.Module,
    counters: Counters,
    scaler: torch.amp.GradScaler,
    recorder: Recorder,
    world: World,
    *,
    sharded: bool,
) -> Callable[..., None]:
    """What saves a checkpoint, in all processes together: with an optimizer one to carry on from, else weights."""

    def save(path: Path, optimizer: torch.optim.Optimizer | None = None) -> None:
        if world.leads:
            recorder.sync()  # a checkpoint never knows more steps than the metrics
        counters.scaler = scaler.state_dict()
        if sharded and optimizer is not None:
            save_shards(run.shards, model, optimizer, vars(counters), world)
            return
        weights = whole_weights(model)
        if world.leads:
            save_checkpoint(path, weights, optimizer, vars(counters))

    return save


def _resumed(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    config: TrainConfig,
    run: RunDirectory,
    world: World,
    *,
    sharded: bool,
) -> Counters:
    """The counters of the last checkpoint, which fills the model and the optimizer."""
    last = newest(run.shards) if sharded else None
    stored = load_model(run.last, model) if last is None else load_shards(last, model, optimizer, world)
    counters = counters_of(stored, last or run.last, steps=config.steps)
    if last is None and (counters.step < config.steps or counters.unevaluated):
        load_optimizer(run.last, optimizer, counters.step, may_be_empty=bool(counters.scaler))
    if counters.scaler:
        scaler.load_state_dict(counters.scaler)
    return counters


def _logged(counters: Counters, config: TrainConfig, tokens_per_step: int) -> dict[str, Any]:
    """The means since the last line of the log, which begin anew."""
    steps, seconds = counters.step - counters.logged_step, counters.seconds - counters.logged_seconds
    line = {
        "loss": sum(counters.losses) / len(counters.losses),
        "learning_rate": learning_rate(counters.step - 1, config),
        "tokens_per_second": steps * tokens_per_step / seconds if seconds else None,
        "seconds": counters.seconds,
    }
    counters.losses, counters.logged_step, counters.logged_seconds = [], counters.step, counters.seconds
    return line


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
    shards = world.shards * config.accumulate
    batches = [
        part(task, task.batch(step, world.shard * config.accumulate + i, shards), world)
        for i in range(config.accumulate)
    ]
    count = world.sum(torch.stack([task.count(batch).to(world.device, torch.float32) for batch in batches]).sum())
    optimizer.zero_grad(set_to_none=True)
    total = torch.zeros((), device=world.device)
    for i, batch in enumerate(batches):
        with last_sync_only(model, i == len(batches) - 1):
            with autocast(config, world), world.splitting():
                loss = task.score(model, batch).loss / count
            # data parallelism averages gradients over processes, and the count is that of all of them
            scaler.scale(loss * world.size).backward()
        total += loss.detach()
    scaler.unscale_(optimizer)
    clip_gradients(model.parameters(), config)
    scaler.step(optimizer)
    scaler.update()
    return total


def _evaluate(
    task: Task,
    model: nn.Module,
    config: TrainConfig,
    world: World,
    counters: Counters,
    recorder: Recorder,
    progress: Progress,
    interrupted: Interruption,
    seed: int,
    save_best: Callable[[], None],
) -> bool:
    """Evaluate, write it down, and save the best model so far; returns whether no interruption ended it."""
    torch.manual_seed(_mix(seed, counters.step, world.rank))  # so that a resumed run draws the same numbers
    batches = task.validation(counters.step, world.shard, world.shards)
    try:
        metrics = evaluate(task, model, config, world, until_interrupted(batches, world, interrupted))
    except DroppedError:
        counters.unevaluated = 1
        return False
    counters.unevaluated = 0
    spent = {"seconds": counters.seconds, "cpu_seconds": counters.cpu_seconds}
    recorder.write("validation", counters.step, {**metrics, **spent})
    progress.validated(counters.step, metrics)
    if isinstance(task, WritesSamples):
        with whole(model):
            if world.leads:
                recorder.sample(counters.step, sample := task.sample())
                if counters.step:  # an untrained model writes noise
                    progress.sampled(sample)
    score = metrics["loss"] if config.select == "loss" else -metrics[config.select]
    if score < counters.best_score:
        counters.best_score, counters.best_step = score, counters.step
        save_best()
    elif not counters.step:
        save_best()
    return True


def _refuse_nan(losses: list[float], before: int, run: RunDirectory) -> None:
    for i, loss in enumerate(losses, start=1):
        if not math.isfinite(loss):
            last = newest(run.shards) or (run.last if run.last.exists() else None)
            kept = "nothing had been saved yet" if last is None else f"the last good checkpoint is {last}"
            raise TrainingError(
                f"the loss became {loss} at step {before + i}; {kept}. "
                "Try a smaller train.learning_rate, or train.precision=float32"
            )


def _mix(seed: int, step: int, rank: int) -> int:
    """One 63-bit seed from three numbers, well spread even where they are small."""
    mixed = seed
    for number in (step, rank):
        mixed = (mixed * 6364136223846793005 + number + 1442695040888963407) % 2**63
    return mixed

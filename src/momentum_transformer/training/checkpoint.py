"""Checkpoints: one safetensors file each, replaced in one step, so that a crash leaves the old or the new one.

Tensors are named `model.<parameter>` and `optimizer.<number>.<name>`; counters travel as JSON in the header.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from ..durable import make_folder, replace_file
from ..errors import UserError
from .records import read_counters


class CheckpointError(UserError):
    """A checkpoint that cannot be written or read; the message is for the user."""


def save_checkpoint(
    path: Path, weights: Mapping[str, Tensor], optimizer: torch.optim.Optimizer | None, progress: dict[str, Any]
) -> None:
    """Write beside `path`, then take its place. If writing fails, what was at `path` is untouched.

    Weights that are not finite are no checkpoint: nobody could carry on from them.
    """
    tensors = {f"model.{name}": tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    kept = f"; the checkpoint before it is safe in {path}" if path.exists() else ""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise CheckpointError(
                f"{name} is not finite after step {progress.get('step')}, so it was not saved{kept}. "
                "Try a smaller train.learning_rate, or train.precision=float32"
            )
    if optimizer is not None:
        for number, state in optimizer.state_dict()["state"].items():
            for name, value in state.items():
                tensors[f"optimizer.{number}.{name}"] = torch.as_tensor(value).cpu().contiguous()

    def write(temporary: Path) -> None:
        save_file(tensors, temporary, metadata={"progress": json.dumps(progress)})
        temporary.chmod(path.parent.stat().st_mode & 0o666)  # for everyone who may read the folder

    try:
        make_folder(path.parent)
        replace_file(path, write)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"could not write {path}: {error}{kept}") from error


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """All tensors and counters of a checkpoint."""
    if not path.is_file():
        raise CheckpointError(f"there is no checkpoint {path}; train first, or check the path")
    try:
        with safe_open(path, framework="pt") as file:
            progress = read_counters((file.metadata() or {})["progress"])
            return {name: file.get_tensor(name) for name in file.keys()}, progress  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise CheckpointError(
            f"{path} is damaged or not one of our checkpoints ({error}); delete it and use another, or train again"
        ) from error


def load_model(path: Path, model: nn.Module) -> dict[str, Any]:
    """Fill the model from a checkpoint, every key exactly; returns the counters."""
    tensors, progress = read_checkpoint(path)
    weights = {name.removeprefix("model."): tensor for name, tensor in tensors.items() if name.startswith("model.")}
    wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    given = {name: None if tensor.is_complex() else tuple(tensor.shape) for name, tensor in weights.items()}
    if wanted != given:
        differing = sorted(name for name in wanted.keys() | given.keys() if wanted.get(name) != given.get(name))
        raise CheckpointError(
            f"{path} does not fit this model: {len(differing)} tensors are missing, unknown or of another shape, "
            f"first {differing[0]} ({given.get(differing[0])} in the file, {wanted.get(differing[0])} in the model)"
        )
    model.load_state_dict(weights)
    return progress


def load_optimizer(path: Path, optimizer: torch.optim.Optimizer, step: int, *, may_be_empty: bool = False) -> None:
    """Fill the optimizer's moments and counters from a checkpoint after this step.

    `may_be_empty`: where gradients in float16 overflowed, no step may have been one of the optimizer's.
    """
    tensors, _ = read_checkpoint(path)
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        if key.startswith("optimizer."):
            number, _, name = key.removeprefix("optimizer.").partition(".")
            state.setdefault(int(number) if number.isdecimal() and len(number) < 10 else -1, {})[name] = tensor
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if not state and step and not may_be_empty:
        raise CheckpointError(
            f"{path} has weights but no moments after step {step}, so nobody can carry on from it; train again"
        )
    if state and sorted(state) != list(range(len(parameters))):
        raise CheckpointError(f"{path} holds the optimizer of {len(state)} tensors, this model has {len(parameters)}")
    for i, moments in state.items():
        shapes = {"step": torch.Size(), "exp_avg": parameters[i].shape, "exp_avg_sq": parameters[i].shape}
        if {name: tensor.shape for name, tensor in moments.items()} != shapes:
            raise CheckpointError(f"{path} holds moments of tensor {i} that do not fit; delete it, or train again")
        if not are_moments(moments, parameters[i].dtype, step):
            raise CheckpointError(f"{path} holds impossible moments of tensor {i}; delete it, or train again")
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def are_moments(moments: Mapping[str, Tensor], dtype: torch.dtype, step: int) -> bool:
    """Whether an optimizer may have left them after at most so many steps."""
    if moments.keys() != {"step", "exp_avg", "exp_avg_sq"}:
        return False
    count, mean, square = moments["step"], moments["exp_avg"], moments["exp_avg_sq"]
    if not count.is_floating_point() or mean.dtype != dtype or square.dtype != dtype:
        return False
    return 0 <= float(count) <= step and not bool(mean.isnan().any()) and bool((square >= 0).all())

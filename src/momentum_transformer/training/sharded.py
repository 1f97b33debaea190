"""Weights, gradients and moments over processes (FSDP2), and checkpoints of which each process writes its share (DCP).

A checkpoint is a folder: one safetensors file a process, and progress.json, which comes last and makes it whole. Any
number of processes carries on from it.
"""

import json
import shutil
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..bounded import read_bounded
from ..durable import make_folder, replace_file, sync
from .checkpoint import CheckpointError, are_moments
from .config import TrainConfig
from .distributed import World, WorldError
from .precision import precision_of
from .records import MOST_BYTES, read_counters
from .task import HasParts, Task

SEAL = "progress.json"


def refuse_to_split(task: Task, config: TrainConfig, world: World) -> None:
    """Refuse what cannot be split over the processes: sequences, batches, and float16 under FSDP."""
    if world.context > 1 and not isinstance(task, HasParts):
        raise WorldError(f"train.context={world.context}: the sequences of this experiment cannot be split; use 1")
    if config.parallel == "fsdp" and precision_of(config, world) == "float16":
        raise WorldError("train.parallel=fsdp knows no float16, which is mixed here; use train.precision=bfloat16")
    if config.batch_size < world.shards * config.accumulate:
        raise WorldError(
            f"train.batch_size={config.batch_size} is too small for {world.shards} processes "
            f"with train.accumulate={config.accumulate}: each needs a row; raise it, or use fewer processes"
        )


def shard(model: nn.Module, world: World) -> nn.Module:
    """The model with each weight over all processes, block by block; it is changed in place."""
    try:
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader as _  # noqa: F401
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        raise WorldError(f"train.parallel=fsdp needs PyTorch 2.9 or newer, not {torch.__version__}") from None
    if world.size == 1:
        return model
    # no loss of ours changes a model's output in place
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    mesh = init_device_mesh(world.device.type, (world.size,))
    units: list[Any] = [block for module in model.modules() for block in getattr(module, "blocks", ())]
    for unit in (*units, model):
        fully_shard(unit, mesh=mesh)
    # What a block's backward pass gathers next is fixed. Else FSDP takes the order of all forward passes so far, which
    # is another one in a process that has written a sample or had more to evaluate: then they wait for each other.
    for unit, next_one in zip((*units, model), (model, *units), strict=True):
        unit.set_modules_to_backward_prefetch([next_one])
    return model


@contextmanager
def whole(model: nn.Module) -> Iterator[None]:
    """Inside, every process has all weights, so that its forward passes need no other process."""
    units: list[Any] = [module for module in model.modules() if hasattr(module, "set_reshard_after_forward")]
    for unit in units:
        unit.set_reshard_after_forward(False, recurse=False)
        unit.unshard()
    try:
        yield
    finally:
        for unit in units:
            unit.set_reshard_after_forward(True, recurse=False)
            unit.reshard()


def whole_weights(model: nn.Module) -> dict[str, Tensor]:
    """All weights by name, gathered where they are sharded; every process must call this."""
    return {name: _gathered(tensor.detach()) for name, tensor in model.state_dict().items()}


def _gathered(tensor: Tensor) -> Tensor:
    gather = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()


def newest(folder: Path) -> Path | None:
    """The last checkpoint that was finished, of a folder of checkpoints."""
    found = [
        (int(path.name), path) for path in folder.glob("[0-9]*") if path.name.isdigit() and (path / SEAL).exists()
    ]
    return max(found)[1] if found else None


def save_shards(
    folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, progress: dict[str, Any], world: World
) -> None:
    """A checkpoint of this step in `folder`, to which every process adds its share; then older ones are removed."""
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    tensors, path, before = _tensors(model, optimizer), folder / str(progress["step"]), newest(folder)
    kept = "" if before is None else f"; the checkpoint before it is safe in {before}"
    bad = [name for name, tensor in tensors.items() if name.startswith("model.") and not _finite(tensor)]
    if world.any(bool(bad)):
        raise CheckpointError(
            f"{bad[0] if bad else 'a weight'} is not finite after step {progress['step']}, so it was not saved{kept}. "
            "Try a smaller train.learning_rate, or train.precision=float32"
        )

    def begin() -> None:
        shutil.rmtree(path, ignore_errors=True)  # left behind by a killed process
        make_folder(path)

    def write() -> None:
        writer = HuggingFaceStorageWriter(str(path), save_distributed=True)
        with _quiet():
            save(tensors, storage_writer=writer, no_dist=world.size == 1)

    def seal() -> None:
        for file in path.iterdir():
            sync(file)
        replace_file(path / SEAL, lambda temporary: temporary.write_text(json.dumps(progress), encoding="utf-8"))
        for old in folder.iterdir():
            if old != path:
                shutil.rmtree(old, ignore_errors=True)

    for act, by_all in ((begin, False), (write, True), (seal, False)):
        failure: BaseException | None = None
        try:
            if by_all or world.leads:
                act()
        except (OSError, RuntimeError, CheckpointException) as error:
            failure = error
        if world.any(failure is not None):
            raise CheckpointError(f"could not write {path}: {_line(failure)}{kept}") from failure


def load_shards(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, world: World) -> dict[str, Any]:
    """Fill model and optimizer from a checkpoint of any number of processes; returns the counters."""
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load

    try:
        progress = read_counters(read_bounded(path / SEAL, MOST_BYTES).decode())
        reader = HuggingFaceStorageReader(str(path))
        stored = reader.read_metadata().state_dict_metadata
        _make_moments(model, optimizer, stored)
        tensors = _tensors(model, optimizer)
        if tensors.keys() != stored.keys():
            other = sorted(tensors.keys() ^ stored.keys())
            raise CheckpointError(f"{path} does not fit this model: {len(other)} tensors differ, first {other[0]}")
        with _quiet():
            load(tensors, storage_reader=reader, no_dist=world.size == 1)
    except CheckpointError:
        raise
    except (Exception, CheckpointException) as error:  # damage can raise anything; DCP's error is no Exception
        if any(isinstance(failure, KeyboardInterrupt) for failure, _ in getattr(error, "failures", {}).values()):
            raise KeyboardInterrupt from error  # DCP has wrapped it; the file may be whole
        raise CheckpointError(
            f"{path} is damaged or not one of our checkpoints ({_line(error)}); "
            "delete it and carry on from another, or train again"
        ) from error
    _refuse_impossible(path, model, optimizer, progress.get("step", 0), world)
    return progress


def _refuse_impossible(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, step: int, world: World
) -> None:
    """Refuse moments that no optimizer has after so many steps, whichever process holds them."""
    if step and not optimizer.state:
        raise CheckpointError(
            f"{path} has weights but no moments after step {step}, so nobody can carry on from it; train again"
        )
    learned = {parameter for group in optimizer.param_groups for parameter in group["params"]}
    bad = []
    for name, parameter in model.named_parameters():
        moments = {key: _local(value) for key, value in optimizer.state.get(parameter, {}).items()}
        needed = bool(step) and parameter in learned
        if (moments or needed) and not are_moments(moments, parameter.dtype, step):
            bad.append(name)
    if world.any(bool(bad)):
        held = f"of {bad[0]}" if bad else "in the share of another process"
        raise CheckpointError(f"{path} holds impossible moments {held}; delete it, or train again")


@contextmanager
def _quiet() -> Iterator[None]:
    """DCP warns where there is one process, which is no surprise here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")
        yield


def _tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What a checkpoint holds, by name; single numbers as rows of one, since DCP reads slices."""
    found = {f"model.{name}": tensor.detach() for name, tensor in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            found[f"optimizer.{name}.{key}"] = value.detach()
    return {name: tensor.reshape(1) if tensor.ndim == 0 else tensor for name, tensor in found.items()}


def _make_moments(model: nn.Module, optimizer: torch.optim.Optimizer, names: Iterable[str]) -> None:
    """Room for what a checkpoint holds of the optimizer."""
    for name, parameter in model.named_parameters():
        start = f"optimizer.{name}."
        for stored in names:
            if stored.startswith(start) and "." not in stored[len(start) :]:
                key = stored[len(start) :]
                optimizer.state[parameter][key] = torch.zeros(()) if key == "step" else torch.zeros_like(parameter)


def _line(error: BaseException | None) -> str:
    """The end of what an error says: DCP's begins with where it happened in each process."""
    lines = str(error or "another process failed").strip().splitlines()
    return lines[-1] if lines else repr(error)


def _local(tensor: Tensor) -> Tensor:
    """What this process holds of a tensor."""
    share: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return share


def _finite(tensor: Tensor) -> bool:
    local = _local(tensor)
    return not local.is_floating_point() or bool(local.isfinite().all())

"""A trained model in one line."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from .experiments.configuration import nearest
from .experiments.runs import load_task
from .install import install_hint
from .training.run_directory import RunDirectory, RunError

MOST_LAYERS = 1_000


def load(path: str | Path, *, checkpoint: str = "best") -> nn.Module:
    """The trained model of a run directory, or of a folder that `momentum export` wrote, in evaluation mode.

    Args:
        path: the folder.
        checkpoint: best or last; a folder of Transformers has one only.

    Returns:
        The model, of the class that was trained or exported.

    Examples:
        >>> model = load("runs/copy/momentum/small-seed0")  # doctest: +SKIP
    """
    if checkpoint not in ("best", "last"):
        raise nearest("checkpoint", checkpoint, ("best", "last"))
    folder = Path(path)
    stored = RunDirectory(folder).read("config.json")
    if "model_type" in stored:
        return _from_transformers(folder, stored)
    return load_task(folder, checkpoint)[0].model.eval()


def _from_transformers(folder: Path, stored: dict[str, Any]) -> nn.Module:
    try:
        from .hf.conversion import to_native
        from .hf.modeling import MomentumForCausalLM, MomentumForSequenceClassification
        from .hf.momentum_config import MomentumConfig
    except ModuleNotFoundError as error:
        raise RunError(f"{folder} is a folder of Transformers and needs {error.name}: {install_hint('hf')}") from None
    if stored["model_type"] != MomentumConfig.model_type:
        raise RunError(
            f"{folder} holds a model of type {stored['model_type']!r}, which is none of ours; Transformers loads it"
        )
    kinds: dict[str, Any] = {kind.__name__: kind for kind in (MomentumForCausalLM, MomentumForSequenceClassification)}
    names = stored.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    if not isinstance(name, str) or name not in kinds:
        raise RunError(f"{folder}/config.json must name one of the architectures {', '.join(kinds)}, not {names}")
    layers = stored.get("num_hidden_layers")
    if type(layers) is not int or not 0 <= layers <= MOST_LAYERS:
        raise RunError(f"{folder}/config.json: num_hidden_layers must be 0 to {MOST_LAYERS:,}, not {layers!r}")
    try:
        _check_size(folder, kinds[name], MomentumConfig.from_pretrained(folder))
        return to_native(kinds[name].from_pretrained(folder)).eval()
    except Exception as error:  # Transformers has no error of its own for a damaged folder
        raise RunError(f"{folder} cannot be loaded: {error}") from error


def _check_size(folder: Path, kind: Any, config: Any) -> None:
    """Refuse a config.json with more parameters than are stored: the rest would be initialised at random."""
    with torch.device("meta"):
        needed = sum(parameter.numel() for parameter in kind(config).parameters())
    stored = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    if needed > stored:  # a byte a parameter is the least
        raise ValueError(f"its config.json has {needed:,} parameters, for which {stored:,} bytes are too few")

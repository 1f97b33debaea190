"""Checkpoints that no run wrote are refused in one line, whatever is in them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from momentum_transformer.experiments.configuration import ConfigurationError
from momentum_transformer.experiments.runs import Request, run_training
from momentum_transformer.training.checkpoint import CheckpointError, load_optimizer, save_checkpoint
from momentum_transformer.training.counters import Counters, counters_of

GOOD = {"step": 5, "seconds": 1.5, "best_score": 2, "best_step": 5, "losses": [1.0], "logged_step": 4}
SCALER = {"scale": 1.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 4, "_growth_tracker": 1}
VALUES: dict[str, list[Any]] = {
    "step": [None, -5, 10**18, 11, 5.0, True],
    "best_score": [None, [1.0], float("nan"), 10**400],
    "losses": [3, [None], [float("nan")], {}],
    "seconds": [None, {}, -1.0, float("inf")],
    "cpu_seconds": [[], {}, -1.0],
    "logged_step": [None, 10**400, 6, -1],
    "best_step": [{}, 6],
    "scaler": [None, [], {"scale": 1.0}, {**SCALER, "growth_interval": 1.5}],
}
BAD = [(name, value) for name, values in VALUES.items() for value in values]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_impossible_counters_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(CheckpointError, match=rf"last is damaged: its '{name}' is .*; delete it and use another"):
        counters_of({**GOOD, name: value}, Path("last"), steps=10)


def test_missing_counters_are_refused_and_those_of_later_versions_begin() -> None:
    for stored in ({}, {"seconds": 1.0}, {"step": 1}):
        with pytest.raises(CheckpointError, match="is missing"):
            counters_of(stored, Path("last"), steps=10)
    found = counters_of({"step": 3, "seconds": 2.0}, Path("last"), steps=10)
    assert found == Counters(3, 2.0, None, logged_step=3, logged_seconds=2.0)
    assert counters_of({**GOOD, "scaler": SCALER}, Path("last"), steps=10).scaler == SCALER


def rewritten(path: Path, **changed: Any) -> None:
    """The checkpoint with other counters."""
    tensors = load_file(path)
    save_file(tensors, path, metadata={"progress": json.dumps({**GOOD, **changed})})


def test_a_run_with_impossible_counters_is_not_carried_on(tmp_path: Path) -> None:
    request = Request("copy", "linear", "tiny")
    run_training(request, tmp_path, resume=False)
    (tmp_path / "metrics.jsonl").write_text("")
    rewritten(tmp_path / "checkpoint" / "last.safetensors", step=10**12)
    with pytest.raises(CheckpointError, match="its 'step' is 1000000000000"):
        run_training(request, tmp_path, resume=True)


def checkpoint_of(path: Path, **changed: torch.Tensor) -> torch.optim.Optimizer:
    """An optimizer after one step, and a checkpoint of it with other moments."""
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([parameter])
    parameter.grad = torch.ones(2)
    optimizer.step()
    save_checkpoint(path, {}, optimizer, GOOD)
    moments = load_file(path) | {f"optimizer.0.{name}": value for name, value in changed.items()}
    save_file(moments, path, metadata={"progress": json.dumps(GOOD)})
    return optimizer


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("step", torch.tensor(value)) for value in (-1.0, 6.0, float("nan"), True, 1)),
        ("exp_avg", torch.tensor([1, 1])),
        ("exp_avg", torch.tensor([1.0, torch.nan])),
        ("exp_avg_sq", torch.tensor([1.0, -1.0])),
    ],
)
def test_impossible_moments_are_refused(name: str, value: torch.Tensor, tmp_path: Path) -> None:
    optimizer = checkpoint_of(tmp_path / "last", **{name: value})
    with pytest.raises(CheckpointError, match="holds impossible moments of tensor 0"):
        load_optimizer(tmp_path / "last", optimizer, 5)


def test_weights_without_moments_are_carried_on_from_at_the_beginning_alone(tmp_path: Path) -> None:
    optimizer = checkpoint_of(tmp_path / "last")
    load_optimizer(tmp_path / "last", optimizer, 5)
    save_checkpoint(tmp_path / "last", {}, None, GOOD)
    load_optimizer(tmp_path / "last", optimizer, 0)
    with pytest.raises(CheckpointError, match="has weights but no moments after step 5"):
        load_optimizer(tmp_path / "last", optimizer, 5)


@pytest.mark.parametrize("betas", ["[0.9,1.0]", "[-0.1,0.9]"])
def test_betas_outside_their_range_are_refused(betas: str) -> None:
    with pytest.raises(ConfigurationError, match=r"train\.betas must be in \[0, 1\)"):
        _ = Request("copy", "linear", "tiny", 0, (f"train.betas={betas}",)).config

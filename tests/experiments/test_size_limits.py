"""Sizes that no machine can hold are refused before anything is made of them."""

from pathlib import Path

import pytest

from momentum_transformer.experiments import EXPERIMENTS, size_limits
from momentum_transformer.experiments.configuration import ConfigurationError
from momentum_transformer.experiments.runs import Request, run_training


@pytest.mark.parametrize(
    ("experiment", "setting", "most"),
    [
        ("copy", "data.length=100000000", "1,048,576"),
        ("copy", "train.batch_size=1000000000", "1,048,576"),
        ("lra-pathfinder", "data.examples=100000000", "10,000,000"),
        ("parity", "data.test_lengths=[1,2,3,9000000]", "1,048,576"),
    ],
)
def test_sizes_beyond_all_use_are_refused(experiment: str, setting: str, most: str, tmp_path: Path) -> None:
    name = setting.partition("=")[0]
    with pytest.raises(ConfigurationError, match=rf"{name} must be at most {most}, not"):
        run_training(Request(experiment, "linear", "tiny", 0, (setting,)), tmp_path / "run", resume=False)
    assert not (tmp_path / "run").exists()


def test_a_batch_that_memory_cannot_hold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size_limits, "available_memory", lambda: 2.0**22)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    request = Request("copy", "linear", "tiny", 0, ("train.batch_size=8192",))
    with pytest.raises(ConfigurationError, match=r"8,192 sequences of 16 tokens at width 16 needs 0\.0 GB"):
        run_training(request, tmp_path / "run", resume=False)
    size_limits.check_batch(request.config, 8)


def test_every_experiment_is_within_the_limits() -> None:
    for name, experiment in EXPERIMENTS.items():
        for scale in experiment.minutes:
            size_limits.check_sizes(Request(name, experiment.models[0], scale).config)

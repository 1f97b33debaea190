"""The scale between minutes and weeks: medium lies between small and paper, and is the same for every model."""

import dataclasses
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from momentum_transformer.experiments import EXPERIMENTS
from momentum_transformer.experiments.configuration import ConfigurationError, paths
from momentum_transformer.experiments.experiment import SCALES
from momentum_transformer.experiments.runs import Request

MEDIUM = ("copy", "mnist", "cifar10", "lra-listops", "lra-text", "lra-image", "lra-retrieval", "multi30k")
RHYTHM = ("train.log_every", "train.evaluate_every", "train.save_every")  # no part of a protocol
WHOLE = ("data.train", "data.validation", "data.test")  # 0 means all there are
NAMES = ("model.attention", "model.residual")


def settings(experiment: str, model: str, scale: str) -> dict[str, Any]:
    found = paths(EXPERIMENTS[experiment].config(model, scale))
    for name in WHOLE:
        if experiment.startswith("lra-") and found[name] == 0:
            found[name] = 10**9
    return found


@pytest.mark.parametrize("experiment", MEDIUM)
def test_medium_lies_between_small_and_paper(experiment: str) -> None:
    for model in EXPERIMENTS[experiment].models:
        small, medium, paper = (settings(experiment, model, scale) for scale in ("small", "medium", "paper"))
        for name, value in medium.items():
            if name in RHYTHM:
                continue
            ends = small[name], paper[name]
            if isinstance(value, int | float) and not isinstance(value, bool):
                assert min(ends) <= value <= max(ends), (model, name)
            elif isinstance(value, list):
                assert all(min(pair) <= v <= max(pair) for v, *pair in zip(value, *ends, strict=True)), (model, name)
            else:
                assert value in ends, (model, name)


@pytest.mark.parametrize("experiment", MEDIUM)
def test_no_model_has_settings_of_its_own_at_medium(experiment: str) -> None:
    """Teachers and baselines are no contestants. What two models both have is the same in both."""
    contestants = [m for m in EXPERIMENTS[experiment].models if m not in ("autoregressive", "bag-of-tokens")]
    found = [settings(experiment, model, "medium") for model in contestants]
    for one, other in combinations(found, 2):
        assert {name for name in one.keys() & other.keys() if one[name] != other[name]} <= set(NAMES)


def test_listops_at_medium_is_the_papers_protocol() -> None:
    for model in EXPERIMENTS["lra-listops"].models:
        medium, paper = (EXPERIMENTS["lra-listops"].config(model, scale) for scale in ("medium", "paper"))
        assert medium == paper


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_a_scale_that_an_experiment_lacks_is_refused_and_has_no_time(experiment: str) -> None:
    known = EXPERIMENTS[experiment]
    for scale in SCALES:
        if scale in known.minutes:
            assert dataclasses.is_dataclass(known.config(known.models[0], scale))
        else:
            with pytest.raises(ConfigurationError, match=f"{experiment} has no scale '{scale}'"):
                _ = Request(experiment, known.models[0], scale).config
    assert set(MEDIUM) <= {name for name, each in EXPERIMENTS.items() if "medium" in each.minutes}


def test_a_run_at_medium_has_a_directory_of_its_own() -> None:
    assert Request("copy", "linear", "medium").directory(Path("runs")) == Path("runs/copy/linear/medium-seed0")

"""A model's configuration has settings in groups, those that apply; without groups, they are sorted into them."""

import json
from dataclasses import make_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from momentum_transformer.experiments.configuration import ConfigurationError, from_json, paths, to_json
from momentum_transformer.experiments.copy import CopyConfig
from momentum_transformer.experiments.mixer_settings import MomentumSettings
from momentum_transformer.experiments.model_config import (
    GROUPS,
    ModelConfig,
    MomentumConnection,
    check_names,
    model_of,
)
from momentum_transformer.experiments.runs import Request, load_run, refuse_unused
from momentum_transformer.experiments.study_runs import finished_in
from momentum_transformer.layers.presets import PaperBlock

# config.json of `momentum train text --model gated-delta --set model.budget=softmax` before there were groups
FLAT = """{"format": 1, "experiment": "text", "model": "gated-delta", "scale": "small", "seed": 0,
"settings": ["model.budget=softmax"], "config": {
"model": {"attention": "gated-delta", "residual": "plain", "beta": 0.1, "gamma": 0.6, "weighting": "relative",
"connection_beta": 0.99, "connection_gamma": 0.99, "delta": 0.001, "rule": "paper", "attention_dropout": 0.0,
"buckets": 32, "rounds": 4, "chunk_size": 32, "features": 256, "redraw": 1000, "denominator": true,
"scale_by_length": false, "convolution": "own", "tail": "own", "negative": false, "decay": true,
"decay_steps": [0.001, 0.1], "start_beta": 0.5, "depth": 4, "width": 128, "heads": 4, "feedforward": 512,
"budget": "softmax", "dropout": 0.0, "block": "modern", "norm": "post", "activation": "relu"},
"data": {"source": "", "context": 64, "validation": 0.03, "units": "bytes", "pieces": 0, "separator": ""},
"train": {"steps": 2000, "batch_size": 12, "accumulate": 1, "optimizer": "adamw", "learning_rate": 0.001,
"betas": [0.9, 0.99], "epsilon": 1e-08, "weight_decay": 0.1, "decayed": "matrices", "clip": "global", "clip_norm": 1.0,
"schedule": "cosine", "drop_at": 0.3, "drop_factor": 0.1, "final_rate": 0.0001, "warmup": 0.05, "cycle_beta1": false,
"select": "loss", "precision": "float32", "compile": false, "parallel": "ddp", "context": 1, "log_every": 10,
"evaluate_every": 200, "save_every": 200}, "positions": "own"}}"""
FITTED = Request("text", "gated-delta", "small", 0, ("model.budget=softmax",))


def stored(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(text)
    return folder


def changed(**model: Any) -> dict[str, Any]:
    """The model of that run with some of its values changed."""
    return {**json.loads(FLAT)["config"]["model"], **model}


def test_a_file_has_the_settings_that_apply_and_no_others() -> None:
    config = Request("copy", "momentum-connection", "tiny").config
    assert to_json(config.model) == {
        **{"attention": "momentum", "residual": "momentum", "block": "paper", "budget": "own", "dropout": 0.0},
        **{"depth": 2, "width": 16, "heads": 2, "feedforward": 32, "convolution": "own", "tail": "own"},
        "mixer": {"beta": 0.1, "gamma": 0.6, "weighting": "relative", "denominator": True, "scale_by_length": False},
        "connection": {"connection_beta": 0.99, "connection_gamma": 0.99},
        "preset": {"norm": "post", "activation": "relu"},
    }
    modern = to_json(Request("text", "retention", "tiny").config.model)
    assert [modern[group] for group in GROUPS] == [{}, {}, {}]


@pytest.mark.parametrize("name", ["dropout", "rule", "norm", "mixer"])
def test_a_mixer_cannot_take_the_name_of_another_parts_setting(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_names()
    odd = make_dataclass("OddSettings", [(name, float, 0.5)], frozen=True)
    monkeypatch.setitem(GROUPS["mixer"][1], "odd", odd)
    with pytest.raises(ValueError, match=f"a setting needs a name of its own, and {name} is one of another part"):
        check_names()


def test_a_run_from_before_there_were_groups_is_the_run_that_is_asked_for(tmp_path: Path) -> None:
    run = stored(FITTED.directory(tmp_path), FLAT)
    assert load_run(run) == (FITTED, replace(FITTED.config, tied="own"))  # the default of that time
    assert finished_in(tmp_path)(FITTED) is None
    (run / "metrics.jsonl").write_text('{"kind": "concluded", "step": 2000}\n')
    found = finished_in(tmp_path)(FITTED)
    assert found is not None
    assert found.path == run


def test_settings_without_groups_go_where_they_belong() -> None:
    values = changed(attention="momentum", residual="momentum", block="paper", norm="pre", beta=0.3)
    model = from_json(ModelConfig, values)
    assert model.mixer == MomentumSettings(beta=0.3, gamma=0.6)
    assert model.connection == MomentumConnection(0.99, 0.99)
    assert model.preset == PaperBlock("pre", "relu")
    older = {name: value for name, value in values.items() if name not in ("weighting", "connection_gamma", "norm")}
    assert from_json(ModelConfig, older) == model.having(weighting="relative", connection_gamma=1.0, norm="post")


NESTED = to_json(FITTED.config.model)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (changed(negativ=True), "unknown setting 'model.negativ'; did you mean 'model.negative'?"),
        (changed(negative=1), "model.negative must be true or false, not 1"),
        (changed(attention="gated"), "model.attention must be one of 'softmax', "),
        (changed(attention=["delta"]), "model.attention must be one of 'softmax', "),
        (changed(residual=None), "model.residual must be one of 'plain', 'momentum', 'adaptive', not None"),
        ({**NESTED, "mixer": {"beta": 0.1}}, "unknown setting 'model.beta'"),
        ({**NESTED, "beta": 0.1}, "unknown setting 'model.beta'"),
        ({**NESTED, "mixer": {"decay": "no"}}, "model.decay must be true or false, not 'no'"),
        ({**NESTED, "mixer": 3}, "model.mixer is a group of settings, not 3"),
        ({**NESTED, "preset": {"norm": "pre"}}, "unknown setting 'model.norm'"),
        ({**NESTED, "depth": 10**6}, "model.depth must be 0 to 1,000, not 1,000,000"),
    ],
)
def test_a_damaged_model_is_refused_in_one_line(model: Any, message: str, tmp_path: Path) -> None:
    content = json.loads(FLAT)
    content["config"]["model"] = model
    with pytest.raises(ConfigurationError) as refused:
        load_run(stored(tmp_path / "run", json.dumps(content)))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_setting_has_one_path_which_leaves_its_group_out() -> None:
    with pytest.raises(ConfigurationError, match=r"unknown setting 'model.mixer.beta'; did you mean 'model.beta'\?"):
        _ = Request("copy", "momentum", "tiny", 0, ("model.mixer.beta=0.3",)).config


def test_what_is_chosen_by_a_setting_has_the_coefficients_of_the_experiment_and_the_order_does_not_matter() -> None:
    chosen = ("model.attention=momentum", "model.residual=adaptive", "model.beta=0.3")
    for settings in (chosen, chosen[::-1]):
        model = Request("copy", "softmax", "tiny", 0, settings).config.model
        assert model == Request("copy", "adaptive-momentum", "tiny", 0, ("model.beta=0.3",)).config.model
        assert paths(model)["gamma"] == 0.6


def test_a_modern_block_has_no_norm_to_set() -> None:
    request = Request("text", "softmax", "tiny", 0, ("model.norm=pre",))
    with pytest.raises(ConfigurationError, match=r"model\.norm does nothing for softmax"):
        refuse_unused([request])
    paper = Request("text", "softmax", "tiny", 0, ("model.norm=pre", "model.block=paper"))
    refuse_unused([paper])
    assert paper.config.model.preset == PaperBlock("pre")


def test_a_group_of_another_kind_is_refused() -> None:
    parts = vars(model_of({}))
    with pytest.raises(ValueError, match=r"model\.mixer must be LinearSettings, not MomentumSettings"):
        ModelConfig(**{**parts, "attention": "linear"})


def test_a_configuration_of_groups_survives_json() -> None:
    config = Request("copy", "hybrid", "tiny").config
    assert from_json(CopyConfig, json.loads(json.dumps(to_json(config)))) == config

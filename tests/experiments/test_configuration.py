"""Configurations survive JSON, and wrong settings name the nearest right one."""

import json
import re
from pathlib import Path

import pytest

from momentum_transformer.experiments import EXPERIMENTS
from momentum_transformer.experiments.configuration import ConfigurationError, from_json, override, paths, to_json
from momentum_transformer.experiments.copy import CopyConfig, config
from momentum_transformer.experiments.runs import Request


@pytest.mark.parametrize("scale", ["tiny", "small", "paper"])
@pytest.mark.parametrize("model", EXPERIMENTS["copy"].models)
def test_a_configuration_survives_json(model: str, scale: str) -> None:
    given = config(model, scale)
    assert from_json(CopyConfig, json.loads(json.dumps(to_json(given)))) == given


def test_settings_change_one_value_each() -> None:
    changed = override(config("momentum", "tiny"), ["train.steps=7", "model.beta=0.5", "train.betas=[0.8, 0.9]"])
    assert (changed.train.steps, paths(changed.model)["beta"], changed.train.betas) == (7, 0.5, (0.8, 0.9))
    assert paths(override(config("momentum", "tiny"), ["model.beta=0"]))["model.beta"] == 0.0


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.attention=softmx", "not 'softmx'; did you mean 'softmax'?"),
        ("train.stepz=3", "unknown setting 'train.stepz'; did you mean 'train.steps'?"),
        ("training.steps=3", "unknown setting 'training.steps'; did you mean 'train.steps'?"),
        ("steps=3", "unknown setting 'steps'"),
        ("train.steps", "--set takes part.field=value, not 'train.steps'"),
        ("train.steps=many", "train.steps must be a whole number, not 'many'"),
        ("train.steps=1.5", "train.steps must be a whole number, not 1.5"),
        ("train.steps=true", "train.steps must be a whole number, not True"),
        ("train.steps=0", "train.steps must be 1 or more, not 0"),
        ("train.learning_rate=-1", "train.learning_rate must be positive"),
        ("model.attention=sofmax", "model.attention must be one of 'softmax'"),
        ("train.betas=[1]", "train.betas must be a list of 2 values"),
        ("train=3", "unknown setting 'train'"),
        ("train.compile=1", "train.compile must be true or false, not 1"),
    ],
)
def test_wrong_settings_say_what_is_right(setting: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message.replace("[", r"\[").replace("?", r"\?")):
        override(config("momentum", "tiny"), [setting])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cpy", "momentum"), "unknown experiment 'cpy'; did you mean 'copy'"),
        (("copy", "momentom"), "unknown model 'momentom'; did you mean 'momentum'"),
    ],
)
def test_wrong_names_say_what_is_right(arguments: tuple[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Request(*arguments)


def test_an_unknown_scale_says_what_is_right() -> None:
    with pytest.raises(ConfigurationError, match="unknown scale 'smal'; did you mean 'small'"):
        _ = Request("copy", "momentum", "smal").config


def test_run_directories_tell_runs_apart() -> None:
    plain, changed = Request("copy", "linear", "small", 3), Request("copy", "linear", "small", 3, ("model.beta=0.5",))
    assert plain.directory(Path("runs")) == Path("runs/copy/linear/small-seed3")
    assert changed.directory(Path("runs")) == Path("runs/copy/linear/small-seed3,model.beta=0.5")


def test_a_run_on_data_of_ones_own_is_named_after_the_file_and_other_data_has_another_name() -> None:
    columns = ("data.label_column=1", "data.text_column=2")
    several = (
        ("data.source=a/reviews.tsv",),
        ("data.source=b/reviews.tsv",),
        ("data.source=a/reviews.tsv", *columns),
        ("data.source=a/reviews.tsv", *columns[::-1], "train.steps=5"),
    )
    names = [Request("table", "linear", "tiny", 0, settings).directory(Path("runs")).name for settings in several]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("tiny-seed0,reviews-[0-9a-f]{6}(,train.steps=5)?", name) for name in names)

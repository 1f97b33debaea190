"""The table of models: one row has everything that a model is known by."""

import pytest

from momentum_transformer.cli import main
from momentum_transformer.experiments.configuration import ConfigurationError
from momentum_transformer.experiments.model_config import named
from momentum_transformer.experiments.named_models import ALL_MODELS, BY_NAME, MIXERS, NAMED
from momentum_transformer.experiments.runs import Request, refuse_unused
from momentum_transformer.report.figures import COLOURS, DASHES, MARKERS


def test_no_two_models_look_alike() -> None:
    for look in (COLOURS, DASHES, MARKERS):
        assert list(look) == list(ALL_MODELS)
    assert len(set(COLOURS.values())) == len(set(MARKERS.values())) == len(NAMED)


@pytest.mark.parametrize("name", ALL_MODELS)
def test_a_name_is_a_mixer_and_a_connection(name: str) -> None:
    config = named(name, {})
    assert config.attention in MIXERS
    assert config.residual == BY_NAME[name].residual
    assert config.make_mixer(8)


@pytest.mark.parametrize("name", ALL_MODELS)
def test_a_model_has_the_settings_of_its_row_and_of_its_connection(name: str) -> None:
    config = named(name, {})
    assert type(config.mixer) is BY_NAME[name].settings
    assert set(config.own_settings()) == {*vars(config.mixer), *vars(config.connection)}


@pytest.mark.parametrize(
    ("model", "setting", "message"),
    [
        ("momentum", "model.buckets=3", "model.buckets does nothing for momentum; settings of its own: model.beta, "),
        ("momentum", "model.connection_beta=0.3", "model.connection_beta does nothing for momentum"),
        ("retention", "model.beta=0.3", "model.beta does nothing for retention; settings of its own: none"),
        ("delta", "model.decay=false", "model.decay does nothing for delta; settings of its own: model.negative\n"),
    ],
)
def test_a_setting_that_does_nothing_is_refused_in_one_line(
    model: str, setting: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["train", "copy", "--model", model, "--scale", "tiny", "--set", setting])
    assert left.value.code == 2
    assert message in (said := capsys.readouterr().err)
    assert said.count("\n") == 1


def test_a_study_takes_a_setting_that_some_of_its_models_have() -> None:
    both = [Request("copy", model, "tiny", 0, ("model.beta=0.3",)) for model in ("softmax", "momentum")]
    refuse_unused(both)
    with pytest.raises(ConfigurationError, match=r"model\.beta does nothing for softmax"):
        refuse_unused(both[:1])

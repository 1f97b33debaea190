"""What a run notes about where its numbers come from."""

import pytest

from momentum_transformer.training.provenance import provenance


@pytest.mark.parametrize(
    ("argv", "noted"),
    [
        (["/somewhere/momentum_transformer/__main__.py", "train", "copy"], "momentum train copy"),
        (["/usr/bin/momentum", "bench"], "momentum bench"),
    ],
    ids=["module", "program"],
)
def test_the_noted_command_is_one_that_can_be_typed(
    argv: list[str], noted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", argv)
    assert provenance()["command"] == noted

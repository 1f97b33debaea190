"""The page under load in small: `python -m tests.load` is the whole of it."""

import pytest

from momentum_transformer.web import connections
from tests import load

HELD, COMING, AT_ONCE = 300, 5, 20


@pytest.mark.parametrize("kind", load.KINDS)
def test_others_keep_no_viewer_out(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "HOSTILE", HELD)
    monkeypatch.setattr(load, "HONEST", COMING)
    monkeypatch.setattr(connections, "ASKING_SECONDS", 3.0)
    found = load.measured(lambda port: load.under(port, load.KINDS[kind]))
    assert found["served"] == COMING
    assert found["open_after_a_deadline"] == 0


def test_viewers_who_come_at_once_are_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "VIEWERS", AT_ONCE)
    found = load.measured(load.crowd)
    assert (found["served"], found["refused"]) == (AT_ONCE, 0)
    assert found["waited_in_the_queue"] > 0

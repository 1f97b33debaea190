"""The studio: viewers take turns, one drawing each; who leaves frees the worker."""

import asyncio
from contextlib import ExitStack
from typing import Any

import pytest

from momentum_transformer.web.clients import client
from momentum_transformer.web.messages import DrawRequest, Request, TranslateRequest, WriteRequest
from momentum_transformer.web.page_models import Drawable, Picture, Step, describe
from momentum_transformer.web.studio import BusyError, Place, Studio

from .fake import FakeModel, FakeTranslator, FakeWriter


def request(viewer: str, *models: int, given: bytes = b"", seed: int = 0) -> DrawRequest:
    return DrawRequest(viewer, models, given, 1.0, seed)


async def collect(studio: Studio, asked: Request) -> list[dict[str, Any]]:
    with studio.admit(asked.viewer) as place:
        return [event async for event in studio.events(asked, place)]


def test_every_byte_comes_once_and_in_order_with_its_numbers() -> None:
    studio = Studio([FakeModel()], slice_seconds=0.0)
    events = asyncio.run(collect(studio, request("a", 0, given=b"\x05\x06\x07", seed=2)))
    assert [value for event in events for value in event["values"]] == [position + 2 for position in range(3, 16)]
    assert [event["done"] for event in events] == [False] * 12 + [True]
    assert events[-1]["given_bits_per_dim"] == 1.0
    assert events[-1]["drawn_bits_per_dim"] == 2.0
    assert [event["state_bytes"] for event in events] == [100 * (position + 1) for position in range(3, 16)]
    assert events[0]["values_per_second"] is None
    assert events[-1]["values_per_second"] == pytest.approx(1e6)


def test_a_slice_holds_as_many_bytes_as_fit() -> None:
    whole = asyncio.run(collect(Studio([FakeModel()], slice_seconds=60.0), request("a", 0)))
    assert [len(event["values"]) for event in whole] == [16]


def test_viewers_take_turns_however_many_models_they_watch() -> None:
    """Viewer b with one model draws byte after byte of viewer a's four."""
    log: list[str] = []
    models: list[Drawable] = [FakeModel(name, log=log) for name in ("a1", "a2", "a3", "a4", "b")]
    studio = Studio(models, slice_seconds=0.0)

    async def both() -> None:
        await asyncio.gather(collect(studio, request("a", 0, 1, 2, 3)), collect(studio, request("b", 4)))

    asyncio.run(both())
    turns = [name[0] for name in log]
    assert turns[:32] == ["a", "b"] * 16
    assert [name for name in log if name != "b"][:8] == ["a1", "a2", "a3", "a4"] * 2


def test_who_translates_and_who_draws_take_turns_too() -> None:
    """One step of a translation is one slice."""
    log: list[str] = []
    translators = [FakeTranslator(name, log=log) for name in ("t1", "t2")]
    studio = Studio([FakeModel("d", log=log)], translators, slice_seconds=0.0)

    async def both() -> None:
        asked = TranslateRequest("b", (0, 1), "a dog", 3, False)
        await asyncio.gather(collect(studio, asked), collect(studio, request("a", 0)))

    asyncio.run(both())
    assert log[:16] == ["t1", "d", "t2", "d"] * 4


def test_who_leaves_a_translation_stops_it_within_one_step() -> None:
    model = FakeTranslator(pause=0.01)
    studio = Studio([FakeModel()], [model])

    async def leave() -> None:
        work = asyncio.create_task(collect(studio, TranslateRequest("a", (0,), "a dog", 10_000, False)))
        while not model.log:
            await asyncio.sleep(0.001)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        made = len(model.log)
        assert (await collect(studio, request("b", 0)))[-1]["done"]
        assert len(model.log) <= made + 1

    asyncio.run(leave())


def test_a_viewer_has_one_drawing_and_a_full_studio_says_so() -> None:
    async def scenario() -> None:
        studio = Studio([], capacity=1, waiting=1)
        with ExitStack() as stack:
            first = stack.enter_context(studio.admit("a"))
            stack.enter_context(studio.admit("b"))
            with pytest.raises(BusyError, match="busy: 1 viewers are waiting already"), studio.admit("c"):
                pass
            with studio.admit("a") as second:
                assert first.ended.result() == "a newer request of this page took its place"
                assert not second.ended.done()
        with studio.admit("c"), studio.admit("d"):
            pass

    asyncio.run(scenario())


def test_a_replaced_drawing_leaves_the_place_to_the_newer_one() -> None:
    async def scenario() -> None:
        studio = Studio([], capacity=1, waiting=0)
        old = studio.admit("a")
        old.__enter__()
        with studio.admit("a"):
            old.__exit__(None, None, None)
            with pytest.raises(BusyError), studio.admit("b"):
                pass

    asyncio.run(scenario())


def test_closing_ends_every_drawing_and_takes_no_more() -> None:
    async def scenario() -> None:
        studio = Studio([])
        with studio.admit("a") as place:
            studio.close()
            assert place.ended.result() == "the server stops"
            with pytest.raises(BusyError, match="the server stops"), studio.admit("b"):
                pass

    asyncio.run(scenario())


def test_who_leaves_stops_the_work_within_one_byte() -> None:
    model = FakeModel(picture=Picture(300, 300, 1), pause=0.001)
    studio = Studio([model, FakeModel()], slice_seconds=3600.0)

    async def leave() -> None:
        drawing = asyncio.create_task(collect(studio, request("a", 0)))
        while not model.log:
            await asyncio.sleep(0.001)
        drawing.cancel()
        await asyncio.gather(drawing, return_exceptions=True)
        events = await collect(studio, request("b", 1))  # is served, so the worker is free again
        assert events[-1]["done"]
        assert len(model.log) < model.picture.size

    asyncio.run(leave())


@pytest.mark.parametrize("fail_at", [0, 3])
def test_a_model_that_raises_stops_alone(fail_at: int, caplog: pytest.LogCaptureFixture) -> None:
    models = [FakeModel("good"), FakeModel("bad", fail_at=fail_at)]
    events = asyncio.run(collect(Studio(models, slice_seconds=0.0), request("a", 0, 1)))
    problems = [event["error"] for event in events if "error" in event]
    assert problems == ["bad failed (ValueError); the server's terminal says more"]
    assert sum(len(event["values"]) for event in events if event["model"] == 0) == 16
    assert "made to fail" in caplog.text


@pytest.mark.parametrize("value", [-1, 256])
def test_a_model_that_draws_no_byte_is_an_error(value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = FakeModel()
    monkeypatch.setattr(model, "draw", lambda *_, **__: iter([Step(value, 1.0, 1, 1.0)]))
    (event,) = asyncio.run(collect(Studio([model]), request("a", 0)))
    assert "error" in event


def test_a_model_that_stops_early_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    model = FakeModel()
    monkeypatch.setattr(model, "draw", lambda *_, **__: iter([Step(1, 1.0, 1, 1.0)]))
    assert "error" in asyncio.run(collect(Studio([model]), request("a", 0)))[-1]


@pytest.mark.parametrize("bits", [float("inf"), float("nan")])
def test_numbers_that_json_lacks_become_null(bits: float) -> None:
    events = asyncio.run(collect(Studio([FakeModel(bits=bits)]), request("a", 0)))
    assert events[-1]["drawn_bits_per_dim"] is None


def test_the_description_takes_examples_from_the_first_model_that_has_them() -> None:
    models = [FakeModel("a"), FakeModel("b", shown=[bytes(16)], momentum=(0.1, 0.6)), FakeModel("c", shown=[b"?"])]
    described = describe(models)
    assert described["examples"] == {"ramps": [[0] * 16]}
    assert [model["momentum"] for model in described["models"]] == [None, (0.1, 0.6), None]


def test_a_text_comes_token_by_token_with_its_numbers() -> None:
    studio = Studio((), (), [FakeWriter(grows=True)], slice_seconds=0.0)
    events = asyncio.run(collect(studio, WriteRequest("a", (0,), "Count:", 4, 1.0, 0)))
    assert [event["text"] for event in events] == [" 1", " 2", " 3", " 4"]
    assert [event["states"] for event in events] == [[1000], [2000], [3000], [4000]]
    assert [event["done"] for event in events] == [False] * 3 + [True]
    assert events[0]["tokens_per_second"] is None
    assert events[-1]["tokens_per_second"] == pytest.approx(1000)


def test_two_hundred_viewers_are_served_in_the_order_of_their_coming_and_see_their_places() -> None:
    """Each hears of a place that only falls, down to one; nobody hears an error."""
    count, capacity = 200, 8
    studio = Studio([FakeModel(picture=Picture(1, 1, 1))], capacity=capacity)
    ends: list[int] = []

    async def view(number: int) -> list[int]:
        events = await collect(studio, request(f"viewer-{number}", 0))
        ends.append(number)
        assert events[-1]["done"]
        assert not any("error" in event for event in events)
        return [event["waiting"] for event in events if "waiting" in event]

    async def all_of_them() -> list[list[int]]:
        return await asyncio.gather(*(view(number) for number in range(count)))

    places = asyncio.run(all_of_them())
    assert all(not heard for heard in places[:capacity])
    for number, heard in enumerate(places[capacity:], start=1):
        assert heard[0] == number
        assert heard == sorted(set(heard), reverse=True)
    assert max(abs(number - place) for place, number in enumerate(ends)) <= 2 * capacity


def test_who_leaves_the_queue_moves_the_others_up_and_a_newer_request_keeps_the_place() -> None:
    async def scenario() -> None:
        studio = Studio([], capacity=1, waiting=5)
        with ExitStack() as stack:
            served, leaving, _, last = (stack.enter_context(studio.admit(name)) for name in "abcd")
            assert (served.before, leaving.before, last.before) == (0, 1, 3)
            again = stack.enter_context(studio.admit("b"))
            assert again.before == 1
            assert leaving.ended.result() == "a newer request of this page took its place"
        with studio.admit("e") as alone:
            assert alone.before == 0

    asyncio.run(scenario())


def test_clients_take_turns_and_none_fills_the_queue() -> None:
    async def scenario() -> None:
        studio = Studio([], capacity=2, waiting=40)
        with ExitStack() as stack:
            greedy = [stack.enter_context(studio.admit(f"greedy {i}", "127.0.0.2")) for i in range(12)]
            assert [place.before for place in greedy] == [0, 0, *range(1, 11)]
            with pytest.raises(BusyError, match="10 requests of your address"), studio.admit("more", "127.0.0.2"):
                pass
            honest = stack.enter_context(studio.admit("honest", "127.0.0.3"))
            another = stack.enter_context(studio.admit("another", "127.0.0.3"))
            assert (honest.before, another.before, greedy[2].before) == (1, 2, 3)
            assert not any(place.before for place in greedy[:2])

    asyncio.run(scenario())


def test_in_a_full_queue_who_has_most_makes_room_for_who_has_fewer() -> None:
    async def scenario() -> None:
        studio = Studio([], capacity=4, waiting=40)
        with ExitStack() as stack:

            def admit(client: str, count: int) -> list[Place]:
                return [stack.enter_context(studio.admit(f"{client} {i}", client)) for i in range(count)]

            greedy = admit("127.0.0.2", 14) + [place for i in (3, 4, 5) for place in admit(f"127.0.0.{i}", 10)]
            assert sum(place.before > 0 for place in greedy) == 40
            honest = admit("127.0.0.6", 8)
            assert [place.before for place in honest[:3]] == [4, 8, 12]  # in turn with the three who are not served
            ended = [place for place in greedy if place.ended.done()]
            assert len(ended) == 8
            assert all("had the most places in a full queue" in place.ended.result() for place in ended)
            for client in ("127.0.0.5", "127.0.0.6"):  # by now, all have as many
                with pytest.raises(BusyError, match="40 viewers are waiting"), studio.admit("more", client):
                    pass
            admit("127.0.0.7", 1)

    asyncio.run(scenario())


def test_this_machine_is_not_asked_to_make_room() -> None:
    async def scenario() -> None:
        studio = Studio([], capacity=1, waiting=4)
        with ExitStack() as stack:
            for name in "abcde":
                stack.enter_context(studio.admit(name))
            with pytest.raises(BusyError, match="4 viewers are waiting"), studio.admit("other", "127.0.0.2"):
                pass

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::1", "127.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("testclient", "testclient", True),
    ],
)
def test_addresses_of_one_network_are_one_client(one: str, other: str, same: bool) -> None:
    assert (client(one) == client(other)) is same

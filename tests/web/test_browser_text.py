"""The Text and Training views in a real browser: what models write and how runs go is what is shown."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from momentum_transformer.web import training_view
from momentum_transformer.web.studio import Studio
from momentum_transformer.web.training_view import Watch

from .cards import answered, card, number
from .contrast import CONTRAST
from .fake import FakeModel, FakeWriter, serving
from .test_training import begin, note, train

MARKUP = "<img src=x onerror=alert(1)> & co"


@pytest.fixture(scope="module")
def writers() -> list[FakeWriter]:
    return [
        FakeWriter("softmax", grows=True, refuses="狗"),
        FakeWriter("gated-delta", note="step 40 of 100", refuses="狗"),
        FakeWriter("bad", fail_at=3, refuses="狗"),
        FakeWriter("forgets", grows=True, begins_again_at=30, refuses="狗"),
        FakeWriter("slow", pause=0.1, refuses="狗"),
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def home(writers: list[FakeWriter], folder: Path) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch, serving(Studio([], [], writers), Watch([folder])) as port:
        patch.setattr(training_view, "SEARCH_SECONDS", 0.0)
        patch.setattr(training_view, "LOOK_SECONDS", 0.0)
        yield f"http://127.0.0.1:{port}/"


@pytest.fixture(scope="module")
def first_model() -> str:
    return "gated-delta"


def write(page: Any, prompt: str, *, without: tuple[str, ...] = ("slow", "forgets")) -> None:
    for name in without:
        page.get_by_role("checkbox", name=name).uncheck()
    page.get_by_role("textbox").fill(prompt)
    page.get_by_role("slider", name="Tokens").fill("50")
    page.get_by_role("button", name="Continue").click()
    page.get_by_text("Done.", exact=True).wait_for()


def test_models_continue_one_prompt_side_by_side(page: Any) -> None:
    assert page.get_by_role("tab", name="Text").get_attribute("aria-selected") == "true"
    assert page.get_by_role("textbox").input_value() == "Count:"
    assert page.locator("#tokens-value").text_content() == "400"
    write(page, MARKUP)
    counted = "".join(f" {number}" for number in range(1, 51))
    for name, state in (("softmax", "50 kB"), ("gated-delta", "1 kB")):
        assert page.locator(f"{card(name)} .written").text_content() == MARKUP + counted
        assert [number(page, name, kind) for kind in ("state", "tokens", "written")] == [state, "1,000", "50 of 50"]
    assert page.locator("#texts img").count() == 0
    assert page.locator(f"{card('gated-delta')} .note").text_content() == "step 40 of 100"
    assert "bad failed (ValueError)" in page.locator(f"{card('bad')} .problem").text_content()


def test_one_scale_tells_a_growing_state_from_a_flat_one(page: Any) -> None:
    write(page, "Count:", without=("slow", "bad", "forgets"))
    ends = {}
    for name in ("softmax", "gated-delta"):
        points = page.locator(f"{card(name)} polyline").get_attribute("points").split()
        ends[name] = [float(point.split(",")[1]) for point in (points[0], points[-1])]
    assert ends["gated-delta"][0] == ends["gated-delta"][1]
    assert ends["softmax"][1] < ends["gated-delta"][1]  # y points down: this is higher


def test_a_state_that_was_larger_before_stays_in_the_picture(page: Any) -> None:
    write(page, "Count:", without=("slow", "bad", "softmax", "gated-delta"))
    points = page.locator(f"{card('forgets')} polyline").get_attribute("points").split()
    assert min(float(point.split(",")[1]) for point in points) >= 0
    assert len(points) == 51  # each token, however many came at once


def test_what_cannot_be_written_is_said_once(page: Any) -> None:
    page.get_by_role("textbox").fill("狗")
    page.get_by_role("button", name="Continue").click()
    page.locator("#text-status", has_text="'狗' is refused").wait_for()
    page.get_by_role("spinbutton", name="Seed").fill("-1")
    page.get_by_role("button", name="Continue").click()
    page.locator("#text-status", has_text="seed must be a whole number").wait_for()


def test_stop_ends_the_work(page: Any, writers: list[FakeWriter]) -> None:
    for name in ("softmax", "gated-delta", "bad", "forgets"):
        page.get_by_role("checkbox", name=name).uncheck()
    page.get_by_role("slider", name="Tokens").fill("1000")
    page.get_by_role("button", name="Continue").click()
    page.locator(f"{card('slow')} .written", has_text="2").wait_for()
    page.get_by_role("button", name="Stop").click()
    page.get_by_text("Stopped.", exact=True).wait_for()
    assert writers[4].has_ended()
    assert 0 < len(writers[4].log) < 1000


def test_done_is_said_when_the_last_card_has_shown_all(page: Any) -> None:
    page.clock.install(time=0)
    page.clock.pause_at(1000)
    page.emulate_media(reduced_motion="no-preference")
    page.get_by_role("checkbox", name="slow").uncheck()
    page.get_by_role("slider", name="Tokens").fill("50")
    with answered(page):
        page.get_by_role("button", name="Continue").click()
    page.locator(f"{card('softmax')} [data-number=written]", has_text="50 of 50").wait_for()
    assert page.locator("#text-status").text_content() == "Writing …"
    page.clock.resume()
    page.get_by_text("Done.", exact=True).wait_for()


def test_places_in_the_queue_are_shown(new_page: Callable[[], Any]) -> None:
    slow = FakeWriter("slow", pause=0.1)
    with serving(Studio([], [], [slow], capacity=1)) as port:
        first, second = new_page(), new_page()
        for page in (first, second):
            page.goto(f"http://127.0.0.1:{port}/")
            page.get_by_role("checkbox", name="slow").wait_for()
        first.get_by_role("slider", name="Tokens").fill("1000")
        first.get_by_role("button", name="Continue").click()
        first.locator(".written", has_text="2").wait_for()
        second.get_by_role("button", name="Continue").click()
        second.get_by_text("In the queue: one viewer is before you.").wait_for()
        first.get_by_role("button", name="Stop").click()
        second.locator(".written", has_text="2").wait_for()
        assert second.locator("#text-status").text_content() == "Writing …"


def test_runs_under_way_are_followed(page: Any, folder: Path) -> None:
    page.get_by_role("tab", name="Training").click()
    page.get_by_text(f"No run in {folder} yet").wait_for()
    run = begin(folder)
    name = "text gated-delta"
    page.locator(card(name)).wait_for()
    assert page.get_by_text("No loss has been noted yet.").is_visible()
    note(run, {"kind": "validation", "step": 0, "loss": 3.0}, train(10, 2.0), train(20, 1.5))
    note(run, {"step": 0, "text": MARKUP}, file="samples.jsonl")
    page.locator(f"{card(name)} .state", has_text="under way: step 20 of 100, 5 tokens/s").wait_for()
    assert page.locator(f"{card(name)} .now").text_content() == "loss now: train 1.5000, validation 3.0000"
    page.locator(f"{card(name)} svg").hover(position={"x": 60, "y": 60})
    assert "train 2.0000 at 10" in page.locator(f"{card(name)} .readout").text_content()
    page.get_by_text("Samples as training goes").click()
    assert page.locator(f"{card(name)} .samples li").all_text_contents() == [f"step 0{MARKUP}"]
    note(run, train(100, 1.2), {"kind": "end", "step": 100})
    page.locator(f"{card(name)} .state", has_text="finished: step 100 of 100").wait_for()


@pytest.mark.parametrize("losses", [(2.0, 0.0021), (5.561, 5.5565)])
def test_the_losses_beside_a_curve_differ_and_are_whole(
    new_page: Callable[[], Any], tmp_path: Path, losses: tuple[float, float]
) -> None:
    note(begin(tmp_path), *(train(10 * i, loss) for i, loss in enumerate(losses, 1)))
    page = new_page()
    with serving(Studio([FakeModel()]), Watch([tmp_path])) as port:
        page.goto(f"http://127.0.0.1:{port}/#training")
        page.get_by_text(f"train {losses[1]:.4f}").wait_for()
        labels = page.locator(f"{card('text gated-delta')} svg text.tick.end")
        assert len(set(labels.all_text_contents()[:4])) == 4
        edge = page.locator(f"{card('text gated-delta')} svg").bounding_box()["x"]
        assert all(labels.nth(i).bounding_box()["x"] >= edge for i in range(4))


def test_without_writers_the_view_says_how_to_get_one(new_page: Callable[[], Any]) -> None:
    page = new_page()
    with serving(Studio([FakeModel()])) as port:
        page.goto(f"http://127.0.0.1:{port}/#text")
        page.get_by_text("No model here writes.").wait_for()
        assert not page.get_by_role("button", name="Continue").is_visible()


def test_nothing_sticks_out_and_text_stands_out_at_every_width_in_light_and_dark(page: Any, folder: Path) -> None:
    run = begin(folder, "wide")
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "model": "softmax", "settings": ["x=" + "long" * 40]}))
    note(run, train(10, 2.0), train(20, 1.5), {"kind": "validation", "step": 20, "loss": 1.0})
    note(run, {"step": 10, "text": "w" * 300}, file="samples.jsonl")
    write(page, "Rindfleischetikettierungsüberwachungsaufgabenübertragungsgesetz")
    for view in ("Text", "Training"):
        page.get_by_role("tab", name=view).click()
        if view == "Training":
            page.locator(f"{card('text softmax')} polyline").first.wait_for()
        for width in (320, 390, 768, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.get_by_role("tab", name="Text").bounding_box()["x"] < width
            if width >= 390:
                last = page.get_by_role("tab", name="Weights").bounding_box()
                assert last["x"] + last["width"] <= width
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate(CONTRAST) == []

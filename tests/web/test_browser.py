"""The page in a real browser: draw, pick, complete, stop, move sliders; pixels and numbers are those of the model."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from momentum_transformer.web.page_models import Picture
from momentum_transformer.web.studio import Studio

from .cards import card, number
from .contrast import CONTRAST
from .fake import FakeModel, serving

SIZE = Picture(8, 8, 1)
EXAMPLE = bytes(range(100, 164))
PIXELS = """canvas => Array.from(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data)"""
SLOW = Picture(110, 110, 1)


@pytest.fixture(scope="module")
def models() -> list[FakeModel]:
    return [
        FakeModel("linear", "small", SIZE, shown=[bytes(64), EXAMPLE]),
        FakeModel("momentum", "small", SIZE, momentum=(0.6, 0.9), bits=1.5),
        FakeModel("bad", "small", SIZE, fail_at=40),
        FakeModel("slow", "large", SLOW, pause=0.01),
        FakeModel("coloured", "colours", Picture(8, 8, 3)),
    ]


@pytest.fixture(scope="module")
def home(models: list[FakeModel]) -> Iterator[str]:
    with serving(Studio(models)) as port:
        yield f"http://127.0.0.1:{port}/"


@pytest.fixture(scope="module")
def first_model() -> str:
    return "linear"


def grey(page: Any, selector: str) -> list[int | None]:
    """The values of a canvas; None where nothing is drawn yet."""
    data = page.locator(selector).evaluate(PIXELS)
    return [value if alpha else None for value, alpha in zip(data[::4], data[3::4], strict=True)]


def test_models_complete_a_test_image_side_by_side(page: Any) -> None:
    page.get_by_role("button", name="Test image 2").click()
    page.get_by_role("spinbutton", name="Seed").fill("7")
    page.get_by_role("button", name="Complete").click()
    page.get_by_text("Done.", exact=True).wait_for()
    upper = list(EXAMPLE[:32])
    assert grey(page, f"{card('test image')} canvas") == list(EXAMPLE)
    for name in ("linear", "momentum"):
        assert grey(page, f"{card(name)} canvas") == upper + [position + 7 for position in range(32, 64)]
    assert grey(page, f"{card('bad')} canvas")[40:] == [None] * 24
    assert "bad failed (ValueError)" in page.locator(f"{card('bad')} .problem").text_content()
    assert [number(page, "momentum", kind) for kind in ("state", "given", "drawn")] == ["6.4 kB", "1.000", "1.500"]
    pixels, images = (float(number(page, "linear", kind).replace(",", "")) for kind in ("pixels", "images"))
    assert pixels / images == pytest.approx(64, rel=0.02)


def test_a_drawing_by_mouse_is_what_the_models_get(page: Any) -> None:
    page.get_by_role("checkbox", name="momentum").uncheck()
    page.get_by_role("checkbox", name="bad").uncheck()
    page.locator("#sketch-canvas").scroll_into_view_if_needed()
    box = page.locator("#sketch-canvas").bounding_box()
    pixel = box["width"] / 8
    page.mouse.move(box["x"] + 1.5 * pixel, box["y"] + 1.5 * pixel)
    page.mouse.down()
    page.mouse.move(box["x"] + 6.5 * pixel, box["y"] + 1.5 * pixel, steps=5)
    page.mouse.move(box["x"] + 6.5 * pixel, box["y"] + 7.5 * pixel, steps=5)
    page.mouse.up()
    sketched = grey(page, "#sketch-canvas")
    assert sketched[9:15] == [255] * 6
    assert sketched[32:] == [None] * 32  # what lies below the line is not the viewer's
    page.get_by_role("button", name="Complete").click()
    page.get_by_text("Done.", exact=True).wait_for()
    assert grey(page, f"{card('linear')} canvas") == sketched[:32] + list(range(32, 64))
    assert page.locator(".card").count() == 1
    page.get_by_role("button", name="Clear").click()
    assert grey(page, "#sketch-canvas")[:32] == [0] * 32


def test_where_nothing_is_drawn_the_models_make_the_whole_picture(page: Any) -> None:
    page.get_by_role("button", name="Complete").click()
    page.get_by_text("Done.", exact=True).wait_for()
    assert grey(page, f"{card('linear')} canvas") == list(range(64))
    assert number(page, "linear", "given") == "–"


def test_everything_works_by_keyboard(page: Any) -> None:
    sketch = page.get_by_label("Sketch", exact=True)
    sketch.focus()
    for key in ("ArrowDown", "ArrowRight", " ", "ArrowRight", " ", "Delete"):
        page.keyboard.press(key)
    assert [position for position, value in enumerate(grey(page, "#sketch-canvas")[:32]) if value] == [8 + 5]
    assert page.locator("#sketch-position").text_content() == "row 2, column 7, empty"
    page.get_by_label("Rows given").focus()
    page.keyboard.press("Home")
    assert page.locator("#rows-value").text_content() == "0 of 8"
    page.get_by_role("slider", name="Temperature").focus()
    page.keyboard.press("End")
    assert page.locator("#temperature-value").text_content() == "2.00"
    page.get_by_role("spinbutton", name="Seed").focus()
    page.keyboard.press("Enter")
    page.get_by_text("Done.", exact=True).wait_for()
    assert grey(page, f"{card('linear')} canvas") == list(range(64))
    assert number(page, "linear", "given") == "–"
    page.get_by_role("tab", name="Pictures").focus()
    page.keyboard.press("End")
    assert page.get_by_role("tab", name="Weights").get_attribute("aria-selected") == "true"
    assert page.locator("#weights").is_visible()


def test_stop_and_a_closed_page_end_the_work(page: Any, models: list[FakeModel]) -> None:
    slow = models[3]
    for leave in (lambda: page.get_by_role("button", name="Stop").click(), lambda: page.close()):
        page.get_by_label("Pictures of").select_option("large")
        page.get_by_role("button", name="Complete").click()
        page.locator(f"{card('slow')} dd", has_text="kB").wait_for()
        leave()
        assert slow.has_ended()
        assert 0 < len(slow.log) < SLOW.size
        slow.log.clear()


def test_what_cannot_be_asked_is_said(page: Any) -> None:
    page.get_by_role("spinbutton", name="Seed").fill("-1")
    page.get_by_role("button", name="Complete").click()
    assert "seed must be a whole number" in page.locator("#status").text_content()
    for name in ("linear", "momentum", "bad"):
        page.get_by_role("checkbox", name=name).uncheck()
    page.get_by_role("button", name="Complete").click()
    assert page.locator("#status").text_content() == "Choose a model first."


def test_a_busy_or_absent_server_is_said(new_page: Callable[[], Any], home: str) -> None:
    page = new_page()
    page.goto(home)
    page.get_by_role("checkbox", name="linear").wait_for()
    answers = {
        "busy: 8 viewers": lambda route: route.fulfill(status=503, json={"error": "busy: 8 viewers"}),
        "The server refuses: too many": lambda route: route.fulfill(status=503, body="too many"),
        "The server does not answer.": lambda route: route.abort(),
    }
    for message, answer in answers.items():
        page.route("**/draw", answer)
        page.get_by_role("button", name="Complete").click()
        page.get_by_text(message, exact=True).wait_for()
        page.unroute("**/draw")


def test_colours_are_sketched_and_completed(page: Any) -> None:
    page.get_by_label("Pictures of").select_option("colours")
    page.get_by_label("Colour", exact=True).fill("#204080")
    page.get_by_label("Sketch", exact=True).focus()
    page.keyboard.press(" ")
    page.get_by_role("button", name="Complete").click()
    page.get_by_text("Done.", exact=True).wait_for()
    data = page.locator(f"{card('coloured')} canvas").evaluate(PIXELS)
    assert data[16:20] == [0x20, 0x40, 0x80, 255]
    assert data[-4:] == [189, 190, 191, 255]


def test_the_weights_follow_the_sliders(page: Any) -> None:
    page.get_by_role("tab", name="Weights").click()
    assert "weighs 0.9 at distance 0" in page.locator("#plot-summary").text_content()  # β and γ of the loaded model
    page.get_by_label("Momentum β").fill("0.5")
    page.get_by_label("Step size γ").fill("1")
    summary = page.locator("#plot-summary").text_content()
    assert "weighs 1 at distance 0, 1.999 at distance 10, and tends to γ / (1 − β) = 2." in summary
    heights = page.locator("#plot .momentum").evaluate("line => Array.from(line.points, point => point.y)")
    one = float(page.locator("#plot .linear").get_attribute("y1"))
    zero = max(float(line.get_attribute("y1")) for line in page.locator("#plot .grid").all())
    weights = [(zero - height) / (zero - one) for height in heights]
    assert weights == pytest.approx([2 - 2.0**-distance for distance in range(len(weights))], abs=0.01)
    page.get_by_role("button", name="β = 0.6, γ = 0.9").click()
    assert page.get_by_label("Momentum β").input_value() == "0.6"


def test_nothing_sticks_out_and_text_stands_out_at_every_width_in_light_and_dark(page: Any) -> None:
    page.get_by_role("button", name="Complete").click()
    page.get_by_text("Done.", exact=True).wait_for()
    for view in ("Pictures", "Weights"):
        page.get_by_role("tab", name=view).click()
        for width in (320, 390, 768, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate(CONTRAST) == []

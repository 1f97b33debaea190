"""The translation view in a real browser: write, translate, watch words change, stop; what is shown is the model's."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from momentum_transformer.web.page_models import Example
from momentum_transformer.web.studio import Studio

from .cards import answered, card, number
from .contrast import CONTRAST
from .fake import FakeModel, FakeTranslator, serving

MARKUP = "<img src=x onerror=alert(1)> & co"


@pytest.fixture(scope="module")
def translators() -> list[FakeTranslator]:
    return [
        FakeTranslator("autoregressive", refinements=None, refuses="狗"),
        FakeTranslator(
            "momentum", refuses="狗", shown=[Example("A dog", "Ein Hund"), Example("Two men", "Zwei Männer")]
        ),
        FakeTranslator("bad", fail_at=1, refuses="狗"),
        FakeTranslator("slow", ("en", "fr"), pause=1.0),
    ]


@pytest.fixture(scope="module")
def home(translators: list[FakeTranslator]) -> Iterator[str]:
    with serving(Studio([], translators)) as port:
        yield f"http://127.0.0.1:{port}/"


@pytest.fixture(scope="module")
def first_model() -> str:
    return "momentum"


def translate(page: Any, text: str) -> None:
    page.get_by_role("textbox").fill(text)
    page.get_by_role("button", name="Translate").click()
    page.get_by_text("Done.", exact=True).wait_for()


def test_without_picture_models_the_translation_view_comes_first_and_the_other_says_how_to_get_one(page: Any) -> None:
    assert page.get_by_role("tab", name="Translation").get_attribute("aria-selected") == "true"
    assert page.get_by_text("Write a sentence in English").is_visible()
    assert page.get_by_text("Translate it into German").is_visible()
    page.get_by_role("tab", name="Pictures").click()
    assert page.get_by_text("momentum train digits").is_visible()
    assert not page.get_by_role("button", name="Complete").is_visible()


def test_without_translators_the_view_says_how_to_get_one(new_page: Callable[[], Any]) -> None:
    page = new_page()
    with serving(Studio([FakeModel()])) as port:
        page.goto(f"http://127.0.0.1:{port}/#translation")
        page.get_by_text("momentum train multi30k").wait_for()
        assert not page.get_by_role("button", name="Translate").is_visible()


def test_models_translate_side_by_side_with_changed_words_marked(page: Any) -> None:
    page.get_by_label("Refinements").fill("3")
    translate(page, "A big dog runs")
    momentum = page.locator(card("momentum"))
    assert momentum.locator(".words").text_content() == "A BIG DOG runs"
    assert momentum.locator(".words mark").all_text_contents() == ["DOG"]
    rows = momentum.locator(".steps li")
    assert rows.all_text_contents() == ["drafta big dog runs", "1A big dog runs", "2A BIG dog runs", "3A BIG DOG runs"]
    assert rows.nth(0).locator("mark").count() == 0
    assert rows.nth(1).locator("mark").all_text_contents() == ["A"]
    assert [number(page, "momentum", kind) for kind in ("tokens", "refinements", "changed")] == [
        "2,000",
        "3",
        "1 of 4",
    ]
    assert momentum.locator(".words").get_attribute("lang") == "de"
    assert page.locator(f"{card('autoregressive')} .words").text_content() == "a big dog runs"
    assert number(page, "autoregressive", "refinements") == "none, word by word"
    assert not page.locator(f"{card('autoregressive')} [data-number=changed]").is_visible()
    assert "bad failed (ValueError)" in page.locator(f"{card('bad')} .problem").text_content()


def test_refining_stops_at_a_fixed_point_where_asked(page: Any) -> None:
    page.get_by_label("Refinements").fill("20")
    page.get_by_label("Stop when nothing changes").check()
    translate(page, "A dog")
    assert number(page, "momentum", "refinements") == "3, fixed point"
    assert page.locator(f"{card('momentum')} .steps li").last.text_content() == "3unchanged"


def test_a_test_sentence_is_shown_with_its_reference(page: Any) -> None:
    page.get_by_label("Or a test sentence").select_option("Two men")
    assert page.get_by_role("textbox").input_value() == "Two men"
    page.get_by_role("textbox").press("Enter")
    page.get_by_text("Done.", exact=True).wait_for()
    assert page.locator(f"{card('reference')} .words").text_content() == "Zwei Männer"
    translate(page, "Two men run")
    assert page.locator(card("reference")).count() == 0
    assert page.get_by_label("Or a test sentence").input_value() == ""


def test_markup_is_text(page: Any) -> None:
    translate(page, MARKUP)
    assert page.locator(f"{card('autoregressive')} .words").text_content() == MARKUP.lower()
    assert page.locator("#translations img").count() == 0


def test_what_cannot_be_translated_is_said_once(page: Any) -> None:
    translate(page, "A dog")
    page.get_by_role("textbox").fill("狗")
    page.get_by_role("button", name="Translate").click()
    page.locator("#translation-status", has_text="'狗' is refused").wait_for()
    assert page.locator(".card").count() == 0  # nothing of an older sentence stays
    assert page.get_by_text("Write a sentence, then press").is_visible()


def test_what_cannot_be_asked_is_said(new_page: Callable[[], Any], home: str) -> None:
    page = new_page()  # whose console speaks of the refused requests
    page.goto(home)
    page.get_by_role("checkbox", name="momentum").wait_for()
    for text, reason in ((" ", "there is nothing to translate"), ("a" * 1001, "at most 1000 characters, not 1001")):
        page.get_by_role("textbox").fill(text)
        page.get_by_role("button", name="Translate").click()
        page.locator("#translation-status", has_text=reason).wait_for()
    for name in ("autoregressive", "momentum", "bad"):
        page.get_by_role("checkbox", name=name).uncheck()
    page.get_by_role("button", name="Translate").click()
    page.get_by_text("Choose a model first.", exact=True).wait_for()


def test_stop_and_a_closed_page_end_the_work(page: Any, translators: list[FakeTranslator]) -> None:
    slow = translators[3]
    for leave in (lambda: page.get_by_role("button", name="Stop").click(), lambda: page.close()):
        page.get_by_label("Languages").select_option("English → French")
        page.get_by_label("Refinements").fill("20")
        page.get_by_role("button", name="Translate").click()
        page.locator(f"{card('slow')} .steps li").first.wait_for()
        leave()
        assert slow.has_ended()
        assert 0 < len(slow.log) < 21
        slow.log.clear()


def test_steps_appear_one_after_the_other_where_motion_is_welcome(page: Any) -> None:
    page.clock.install(time=0)
    page.clock.pause_at(1000)
    page.emulate_media(reduced_motion="no-preference")
    with answered(page):
        page.get_by_role("textbox").fill("A dog")
        page.get_by_role("button", name="Translate").click()
    rows = page.locator(f"{card('momentum')} .steps li")
    rows.first.wait_for()
    assert rows.count() == 1  # all have arrived, and can be read one by one
    for shown in (2, 3):
        assert page.locator("#translation-status").text_content() == "Translating …"
        page.clock.run_for(700)
        assert rows.count() == shown
    page.clock.run_for(700)
    page.locator(f"{card('momentum')}.finished").wait_for()
    page.get_by_text("Done.", exact=True).wait_for()


def test_steps_that_change_nothing_are_one_line(page: Any) -> None:
    page.get_by_label("Refinements").fill("6")
    translate(page, "A dog")
    rows = page.locator(f"{card('momentum')} .steps li")
    assert rows.all_text_contents() == ["drafta dog", "1A dog", "2A DOG", "3–6unchanged"]


def test_nothing_sticks_out_and_text_stands_out_at_every_width_in_light_and_dark(page: Any) -> None:
    translate(page, "Rindfleischetikettierungsüberwachungsaufgabenübertragungsgesetz and " + "dog " * 40)
    for width in (320, 390, 768, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate(CONTRAST) == []

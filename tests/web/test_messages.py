"""Every field of a request is checked before anything is done with it."""

import json

import pytest

from momentum_transformer.web.messages import (
    MAX_BYTES,
    MAX_CHARACTERS,
    BadRequestError,
    parse_draw_request,
    parse_translate_request,
)
from momentum_transformer.web.page_models import Picture

from .fake import FakeModel, FakeTranslator, ask, ask_translation

TRANSLATORS = [FakeTranslator(), FakeTranslator("second"), FakeTranslator("french", ("en", "fr"))]
MODELS = [FakeModel(), FakeModel("second"), FakeModel("wide", picture=Picture(5, 4, 1))]


def test_a_good_request_is_understood() -> None:
    message = json.dumps(ask(models=[1, 0], given=[0, 255], temperature=1, seed=7)).encode()
    request = parse_draw_request(message, MODELS)
    assert (request.models, request.given, request.temperature, request.seed) == ((1, 0), b"\x00\xff", 1.0, 7)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"viewer": "short"}, "viewer must be"),
        ({"viewer": "../../etc/passwd"}, "viewer must be"),
        ({"viewer": "viewer-one\n"}, "viewer must be"),
        ({"viewer": 12345678}, "viewer must be"),
        ({"models": []}, "models must be a list of 1 to 8 numbers"),
        ({"models": [0] * 9}, "models must be a list of 1 to 8 numbers"),
        ({"models": "0"}, "models must be a list"),
        ({"models": [3]}, "models must be numbers from 0 to 2, not 3"),
        ({"models": [-1]}, "models must be numbers from 0 to 2, not -1"),
        ({"models": [True]}, "models must be numbers from 0 to 2, not true"),
        ({"models": ["/etc/passwd"]}, "models must be numbers"),
        ({"models": [1, 1]}, "models must not name one twice"),
        ({"models": [0, 2]}, "models must all draw the same kind of picture"),
        ({"given": [0] * 16}, "given must be a list of at most 15 bytes"),
        ({"given": "AAAA"}, "given must be a list"),
        ({"given": [256]}, "given must hold whole numbers from 0 to 255, not 256"),
        ({"given": [0.5]}, "given must hold whole numbers"),
        ({"given": [None]}, "given must hold whole numbers"),
        ({"temperature": 0}, "temperature must be a number from 0.1 to 2.0, not 0"),
        ({"temperature": float("nan")}, "temperature must be a number"),
        ({"temperature": float("inf")}, "temperature must be a number"),
        ({"temperature": True}, "temperature must be a number"),
        ({"temperature": 10**400}, "temperature must be a number"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"seed": 2**31}, "seed must be a whole number"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"path": "/etc/passwd"}, "the message must be an object with exactly these fields"),
    ],
)
def test_a_bad_field_is_named(change: dict[str, object], reason: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        parse_draw_request(json.dumps(ask(**change)).encode(), MODELS)
    assert str(refused.value).startswith(reason)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    "message",
    [b"", b"{", b"null", b"[]", b"\xff\xfe\x00", b"{}", b"1" * 5000, b"[" * MAX_BYTES, b'{"a":' * 9000],
)
def test_what_is_no_request_is_refused(message: bytes) -> None:
    with pytest.raises(BadRequestError, match="the message"):
        parse_draw_request(message, MODELS)


@pytest.mark.parametrize("depth", [100, 900, 5000, 30_000])
def test_a_deeply_nested_field_is_refused(depth: int) -> None:
    text = json.dumps(ask(seed="?")).replace('"?"', "[" * depth + "]" * depth)
    with pytest.raises(BadRequestError):
        parse_draw_request(text.encode(), MODELS)


def test_a_good_translation_request_is_understood() -> None:
    message = json.dumps(ask_translation(models=[1, 0], text=" A\tdog\n runs ", until_fixed=True)).encode()
    request = parse_translate_request(message, TRANSLATORS)
    assert (request.models, request.text, request.refinements, request.until_fixed) == ((1, 0), "A dog runs", 2, True)
    longest = json.dumps(ask_translation(text="ü" * MAX_CHARACTERS)).encode()
    assert parse_translate_request(longest, TRANSLATORS).text == "ü" * MAX_CHARACTERS


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"viewer": "short"}, "viewer must be"),
        ({"models": [0] * 9}, "models must be a list of 1 to 8 numbers"),
        ({"models": [3]}, "models must be numbers from 0 to 2, not 3"),
        ({"models": [0, 2]}, "models must all translate between the same languages"),
        ({"text": ""}, "there is nothing to translate"),
        ({"text": " \n\u2003"}, "there is nothing to translate"),
        ({"text": None}, "text must be a text, not null"),
        ({"text": ["A dog"]}, "text must be a text, not a list of 1"),
        ({"text": "a" * (MAX_CHARACTERS + 1)}, f"the text must have at most {MAX_CHARACTERS} characters, not 1001"),
        ({"refinements": -1}, "refinements must be a whole number from 0 to 20, not -1"),
        ({"refinements": 21}, "refinements must be a whole number from 0 to 20, not 21"),
        ({"refinements": 1.5}, "refinements must be a whole number"),
        ({"refinements": True}, "refinements must be a whole number"),
        ({"until_fixed": 1}, "until_fixed must be true or false, not 1"),
        ({"path": "/etc/passwd"}, "the message must be an object with exactly these fields"),
    ],
)
def test_a_bad_field_of_a_translation_is_named(change: dict[str, object], reason: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        parse_translate_request(json.dumps(ask_translation(**change)).encode(), TRANSLATORS)
    assert str(refused.value).startswith(reason)
    assert len(str(refused.value)) < 200


def test_what_no_model_can_do_is_refused() -> None:
    with pytest.raises(BadRequestError, match="there is no such model here"):
        parse_translate_request(json.dumps(ask_translation()).encode(), [])
    with pytest.raises(BadRequestError, match="there is no such model here"):
        parse_draw_request(json.dumps(ask()).encode(), [])

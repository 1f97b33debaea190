"""The page over HTTP: what it answers, and what it refuses."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import momentum_transformer.web
from momentum_transformer.web.app import STATIC, Answer, create_app
from momentum_transformer.web.messages import MAX_BYTES, DrawRequest
from momentum_transformer.web.page_models import Example
from momentum_transformer.web.studio import Studio
from momentum_transformer.web.training_view import Watch

from .fake import FakeModel, FakeTranslator, FakeWriter, ask, ask_text, ask_translation

HOME = "http://127.0.0.1:8000"
FOLDER = Path(momentum_transformer.web.__file__).parent / "static"


@pytest.fixture
def client() -> TestClient:
    models = [FakeModel(shown=[bytes(range(16))]), FakeModel("bad", fail_at=2)]
    translators = [
        FakeTranslator("careful", shown=[Example("A dog", "Ein Hund")], refuses="狗"),
        FakeTranslator("once", refinements=None, refuses="狗"),
        FakeTranslator("bad", fail_at=1),
    ]
    writers = [FakeWriter("counts", note="step 3 of 9", refuses="狗"), FakeWriter("bad", fail_at=2)]
    return TestClient(create_app(Studio(models, translators, writers), host_names=("studio.example",)), base_url=HOME)


def drawn(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_every_file_of_the_page_is_served_and_none_besides(client: TestClient) -> None:
    assert {name for name, _ in STATIC.values()} == {path.name for path in FOLDER.iterdir()}
    for path, (name, media_type) in STATIC.items():
        answer = client.get(path)
        assert answer.status_code == 200
        assert answer.content == (FOLDER / name).read_bytes()
        assert answer.headers["content-type"].startswith(media_type)


def test_the_page_asks_for_nothing_from_elsewhere_and_holds_no_inline_code() -> None:
    for path in FOLDER.iterdir():
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "//" not in [word[:2] for word in text.split('"') if path.suffix == ".html"]
        assert "http:" not in text
        assert "https:" not in text
        assert "style=" not in text
        assert "innerHTML" not in text


def test_models_are_described(client: TestClient) -> None:
    described = client.get("/models").json()
    assert [model["name"] for model in described["models"]] == ["fake", "bad"]
    assert described["examples"] == {"ramps": [list(range(16))]}
    assert described["translators"][:2] == [
        {"name": "careful", "note": "", "source": "en", "target": "de", "refinements": 2},
        {"name": "once", "note": "", "source": "en", "target": "de", "refinements": None},
    ]
    assert described["sentences"] == {"en-de": [{"source": "A dog", "reference": "Ein Hund"}]}
    assert (described["most_models"], described["most_refinements"]) == (8, 20)


def test_a_drawing_is_a_stream_of_lines(client: TestClient) -> None:
    answer = client.post("/draw", json=ask(given=[9, 9], seed=1))
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/x-ndjson"
    events = drawn(answer.text)
    assert [value for event in events for value in event["values"]] == [position + 1 for position in range(2, 16)]
    assert events[-1]["done"] is True


def test_a_model_that_fails_does_not_hurt_the_others_or_the_next_request(client: TestClient) -> None:
    events = drawn(client.post("/draw", json=ask(models=[0, 1])).text)
    assert [event["model"] for event in events if "error" in event] == [1]
    assert sum(len(event["values"]) for event in events if event["model"] == 0) == 16
    assert client.post("/draw", json=ask()).status_code == 200


def test_a_translation_is_a_stream_of_steps_with_changed_words_named(client: TestClient) -> None:
    answer = client.post("/translate", json=ask_translation(models=[0, 1], text="A dog"))
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/x-ndjson"
    events = drawn(answer.text)
    careful, once = ([event for event in events if event["model"] == number] for number in (0, 1))
    assert [(event["step"], event["words"], event["changed"], event["done"]) for event in careful[:-1]] == [
        (0, ["a", "dog"], [], False),
        (1, ["A", "dog"], [0], False),
        (2, ["A", "DOG"], [1], False),
    ]
    assert [event["tokens_per_second"] for event in careful[:-1]] == pytest.approx([4000, 2000, 4000 / 3])
    assert [event.get("words") for event in once] == [["a", "dog"], None]
    assert careful[-1] == {"model": 0, "done": True}


def test_a_translation_can_stop_at_a_fixed_point(client: TestClient) -> None:
    asked = ask_translation(text="A dog", refinements=9, until_fixed=True)
    steps = drawn(client.post("/translate", json=asked).text)[:-1]
    assert [event["is_same"] for event in steps] == [False, False, False, True]


def test_a_text_that_a_model_refuses_is_one_line_and_no_failure(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    events = drawn(client.post("/translate", json=ask_translation(models=[0, 1], text="狗")).text)
    assert [(event["model"], event["error"]) for event in events] == [(0, "'狗' is refused"), (1, "'狗' is refused")]
    assert not caplog.text


def test_a_translator_that_fails_does_not_hurt_the_others(client: TestClient) -> None:
    events = drawn(client.post("/translate", json=ask_translation(models=[0, 2])).text)
    problems = [event["error"] for event in events if "error" in event]
    assert problems == ["bad failed (ValueError); the server's terminal says more"]
    assert [event["model"] for event in events if event["done"]] == [2, 0]


def test_a_bad_translation_request_gets_its_reason(client: TestClient) -> None:
    answer = client.post("/translate", json=ask_translation(text="a" * 2000))
    assert (answer.status_code, answer.json()["error"]) == (
        400,
        "the text must have at most 1000 characters, not 2000",
    )
    assert client.post("/translate", content=b"?", headers={"content-type": "text/plain"}).status_code == 400
    assert client.get("/translate").status_code == 405


def test_a_text_is_a_stream_of_tokens(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    described = client.get("/models").json()
    assert described["writers"][0] == {"name": "counts", "note": "step 3 of 9", "prompt": "Count:"}
    events = drawn(client.post("/write", json=ask_text(models=[0], seed=10)).text)
    assert "".join(event["text"] for event in events) == " 11 12 13 14 15"
    assert events[-1]["done"]
    refused = drawn(client.post("/write", json=ask_text(prompt="狗")).text)
    assert refused == [{"model": 0, "error": "'狗' is refused", "done": True}]
    assert not caplog.text
    failed = drawn(client.post("/write", json=ask_text(models=[0, 1])).text)
    assert [event["error"] for event in failed if "error" in event] == [
        "bad failed (ValueError); the server's terminal says more"
    ]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"prompt": ""}, "there is nothing to continue: write a word or two first"),
        ({"prompt": 3}, "prompt must be a text, not 3"),
        ({"prompt": "a" * 1001}, "the prompt must have at most 1000 characters, not 1001"),
        ({"tokens": 0}, "tokens must be a whole number from 1 to 1000, not 0"),
        ({"tokens": 10**9}, "tokens must be a whole number from 1 to 1000, not 1000000000"),
        ({"models": [7]}, "models must be numbers from 0 to 1, not 7"),
    ],
)
def test_a_bad_text_request_gets_its_reason(client: TestClient, changes: dict[str, Any], reason: str) -> None:
    answer = client.post("/write", json=ask_text(**changes))
    assert (answer.status_code, answer.json()) == (400, {"error": reason})


def test_how_runs_go_is_sent_again_only_when_there_is_news(tmp_path: Path) -> None:
    client = TestClient(create_app(Studio(), Watch([tmp_path])), base_url=HOME)
    answer = client.get("/training")
    assert answer.json() == {"runs": [], "more": 0, "folders": [str(tmp_path)]}
    again = client.get("/training", headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"?", "the message is not JSON"),
        (json.dumps(ask(temperature=9)).encode(), "temperature must be a number from 0.1 to 2.0, not 9"),
        (b" " * (MAX_BYTES + 1), f"the message must be at most {MAX_BYTES} bytes long"),
    ],
)
def test_a_bad_message_gets_its_reason(client: TestClient, body: bytes, reason: str) -> None:
    answer = client.post("/draw", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()) == (400, {"error": reason})


def test_a_message_of_another_type_is_refused(client: TestClient) -> None:
    """So that a form of another site, which needs nobody's leave, cannot ask."""
    answer = client.post("/draw", content=json.dumps(ask()), headers={"content-type": "text/plain"})
    assert answer.status_code == 400


def test_a_full_studio_answers_busy() -> None:
    client = TestClient(create_app(Studio([FakeModel()], capacity=0, waiting=0)), base_url=HOME)
    answer = client.post("/draw", json=ask())
    assert answer.status_code == 503
    assert answer.json()["error"].startswith("busy: 0 viewers are waiting")


def test_a_viewer_that_takes_nothing_loses_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("momentum_transformer.web.app.STALL_SECONDS", 0.01)

    async def scenario() -> None:
        studio = Studio([FakeModel()], capacity=1, waiting=0)
        request = DrawRequest("a", (0,), b"", 1.0, 0)

        async def never(*_: Any) -> Any:
            await asyncio.Event().wait()

        async def take_the_start_only(message: Any) -> None:
            if message["type"] == "http.response.body":
                await never()

        await asyncio.wait_for(Answer(studio, request)({}, never, take_the_start_only), 10)
        with studio.admit("b"):
            pass

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "path",
    [
        "/static/page.js",
        "/../pyproject.toml",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/etc/passwd",
        "//etc/passwd",
        "/models/../x",
    ],
)
def test_no_path_leads_to_a_file(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_drawing_needs_post(client: TestClient) -> None:
    assert client.get("/draw").status_code == 405


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:8000", "LOCALHOST", "[::1]:8000", "studio.example:80"])
def test_own_names_are_answered(client: TestClient, host: str) -> None:
    assert client.get("/models", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "", "[::1", "a b"]
)
def test_a_name_pointed_at_this_machine_is_refused(client: TestClient, host: str) -> None:
    """DNS rebinding."""
    for answer in (
        client.get("/models", headers={"host": host}),
        client.post("/draw", json=ask(), headers={"host": host}),
    ):
        assert answer.status_code == 421


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:9", "http://127.0.0.1", "http://[x", ""]
)
def test_another_site_is_refused(client: TestClient, origin: str) -> None:
    assert client.post("/draw", json=ask(), headers={"origin": origin}).status_code == 403
    assert client.post("/translate", json=ask_translation(), headers={"origin": origin}).status_code == 403
    assert client.get("/models", headers={"origin": origin}).status_code == 403


def test_the_page_itself_is_let_in(client: TestClient) -> None:
    assert client.post("/draw", json=ask(), headers={"origin": HOME}).status_code == 200


def test_every_answer_is_confined(client: TestClient) -> None:
    refused = client.get("/models", headers={"host": "evil.example"})
    for answer in (client.get("/"), client.get("/nowhere"), client.post("/draw", json=ask()), refused):
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in answer.headers

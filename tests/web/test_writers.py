"""Trained language models on the page: what they write is what `generation` writes, and odd prompts break nothing."""

import json
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from momentum_transformer.experiments.runs import Request, run_training
from momentum_transformer.generation.tokens import Sampling, Writer
from momentum_transformer.training.run_directory import RunDirectory
from momentum_transformer.web.app import create_app
from momentum_transformer.web.page_models import RefusedError
from momentum_transformer.web.served_runs import Loaded, load_models
from momentum_transformer.web.studio import Studio

from .fake import ask_text

MODELS = ("softmax", "gated-delta")


def begin(root: Path, model: str) -> Path:
    """A run that was trained for a moment."""
    root.mkdir(exist_ok=True)
    source = root / "lines.txt"
    source.write_text("the quick brown fox jumps over the lazy dog.\n" * 200)
    settings = (f"data.source={source}", "data.units=characters", "data.validation=0.1", "train.steps=4")
    run = root / "runs" / model
    assert run_training(Request("text", model, "tiny", 0, settings), run, resume=False)
    return run


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    root = tmp_path_factory.mktemp("text")
    for model in MODELS:
        begin(root, model)
    return load_models([root / "runs"])


def test_runs_of_text_are_found(loaded: Loaded) -> None:
    assert [writer.name for writer in loaded.writers] == list(MODELS)
    assert (loaded.models, loaded.translators, loaded.missing) == ([], [], [])


@pytest.mark.parametrize("number", range(len(MODELS)), ids=MODELS)
def test_the_page_writes_what_the_sampler_writes(loaded: Loaded, number: int) -> None:
    model = loaded.writers[number]
    steps = list(model.write("the ", tokens=30, temperature=0.7, seed=3))
    task = model.task
    writer = Writer(task.language_model, task.units.encode("the ").tolist(), tokens=30, context=task.longest())
    tokens = list(writer.write(Sampling(0.7, seed=3)))
    assert "".join(step.text for step in steps) == b"".join(task.units.tokens[token] for token in tokens).decode()
    assert steps[-1].state_bytes == writer.state_bytes()
    assert all(step.seconds > 0 for step in steps)


def test_the_state_of_the_delta_rule_is_flat_and_a_cache_grows(loaded: Loaded) -> None:
    softmax, delta = (
        [step.state_bytes for step in model.write("t", tokens=8, temperature=1.0, seed=0)] for model in loaded.writers
    )
    assert softmax == sorted(set(softmax))
    assert len(set(delta)) == 1
    assert delta[0] > 0


def test_a_prompt_outside_the_vocabulary_is_refused_and_says_why(loaded: Loaded) -> None:
    with pytest.raises(RefusedError, match=r"'狗' .* is not in the vocabulary"):
        next(loaded.writers[0].write("the 狗", tokens=1, temperature=1.0, seed=0))


@pytest.mark.parametrize("prompt", ["the", "狗", "\x00", "é" * 1000, "the " * 250])
def test_odd_prompts_are_continued_or_refused_but_break_nothing(
    loaded: Loaded, prompt: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = TestClient(create_app(Studio(*loaded[:3])), base_url="http://localhost")
    body = json.dumps(ask_text(models=[0, 1], prompt=prompt, tokens=40))
    answer = client.post("/write", content=body, headers={"content-type": "application/json"})
    events = [json.loads(line) for line in answer.text.splitlines()]
    assert sum(event["done"] for event in events) == 2
    assert not any("failed" in event.get("error", "") for event in events)
    assert not caplog.text


def test_half_a_character_is_refused_with_its_reason(loaded: Loaded) -> None:
    client = TestClient(create_app(Studio(*loaded[:3])), base_url="http://localhost")
    body = json.dumps(ask_text(models=[0], prompt="\ud800", tokens=4))
    answer = client.post("/write", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert "is half a character" in answer.text


def test_the_step_of_an_unfinished_run_is_on_its_card(loaded: Loaded, tmp_path: Path) -> None:
    assert loaded.writers[1].note == ""
    run = RunDirectory(begin(tmp_path, "gated-delta"))
    lines = [line for line in run.metrics() if line["kind"] in ("train", "validation")]
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (writer,) = load_models([run.path]).writers
    assert writer.note == "step 4 of 4"

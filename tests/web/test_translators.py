"""From translation runs to the page: it shows what `momentum translate` writes, step by step."""

import json
import shutil
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from momentum_transformer.experiments.trained_tasks import load_translation_task
from momentum_transformer.experiments.translation.text_translator import Translator
from momentum_transformer.training.run_directory import RunError
from momentum_transformer.web.app import create_app
from momentum_transformer.web.page_models import RefusedError
from momentum_transformer.web.served_runs import load_models
from momentum_transformer.web.studio import Studio
from momentum_transformer.web.translators import TrainedTranslator

from .fake import ask_translation
from .test_runs import begin
from .toy_runs import train_toy

pytest.importorskip("sentencepiece", reason="translation needs sentencepiece")
LINE = "Child and small man sees a red house near dog ."


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    for model in ("momentum", "autoregressive"):
        train_toy(root, model)
    return root


@pytest.fixture(scope="module")
def translators(runs: Path) -> list[TrainedTranslator]:
    return load_models([runs])[1]


def copied(runs: Path, to: Path) -> Path:
    return Path(shutil.copytree(runs / "translation" / "momentum" / "tiny-seed0", to / "run"))


def test_a_folder_gives_translators_with_their_test_sentences(translators: list[TrainedTranslator]) -> None:
    assert [translator.name for translator in translators] == ["autoregressive", "momentum"]
    assert [translator.refinements for translator in translators] == [None, 3]
    assert {translator.languages for translator in translators} == {("en", "de")}
    sources = [example.source for example in translators[0].examples()]
    assert len(sources) == 8
    assert all(source.endswith(" .") for source in sources)


@pytest.mark.parametrize("number", [0, 1], ids=["autoregressive", "momentum"])
def test_the_steps_are_those_of_the_command(translators: list[TrainedTranslator], number: int, runs: Path) -> None:
    shown = translators[number]
    for text in (LINE, " ".join([LINE] * 4)):  # the longer one is translated in parts
        drafts = list(shown.translate(text, refinements=5, until_fixed=False))
        translator = Translator(shown.task, refinements=5)
        (whole,) = translator.lines([text])
        assert [draft.tokens for draft in drafts] == [len(step) for step in whole.steps]
        assert len(drafts) == (1 if number == 0 else 6)
        assert " ".join(drafts[-1].words) == " ".join(whole.text.split())
        assert all(draft.seconds > 0 for draft in drafts)


def test_refining_ends_at_a_fixed_point(translators: list[TrainedTranslator]) -> None:
    shown = translators[1]
    drafts = [draft.words for draft in shown.translate(LINE, refinements=500, until_fixed=True)]
    assert len(drafts) < 501
    assert drafts[-1] == drafts[-2]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("狗在跑步", "the vocabulary of this run does not know the script of '狗在跑步'"),
        ("A " + "dog " * 200, "a sentence of "),
        ("\ud800", "is half a character; remove it"),
        ("\x01", "there is nothing to translate"),
    ],
)
def test_what_cannot_be_translated_is_refused_in_one_line(
    translators: list[TrainedTranslator], text: str, reason: str
) -> None:
    client = TestClient(create_app(Studio([], translators)), base_url="http://localhost")
    answer = client.post("/translate", content=json.dumps(ask_translation(models=[0, 1], text=text)), headers=JSON)
    events = [json.loads(line) for line in answer.text.splitlines()]
    assert len(events) == (1 if text == "\ud800" else 2)  # which no message may hold
    assert all(reason in event["error"] and "failed" not in event["error"] for event in events)
    with pytest.raises(RefusedError):
        next(translators[1].translate(text, refinements=1, until_fixed=False))


JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    "text", ["!", "\u200b a", "<b>dog</b>", "../../etc/passwd", "▁", "a" * 1000, "😀 a dog", "\x00a"]
)
def test_odd_texts_are_translated_or_refused_but_break_nothing(
    translators: list[TrainedTranslator], text: str
) -> None:
    client = TestClient(create_app(Studio([], translators)), base_url="http://localhost")
    answer = client.post("/translate", json=ask_translation(models=[0, 1], text=text))
    events = [json.loads(line) for line in answer.text.splitlines()]
    assert sum(event["done"] for event in events) == 2
    assert not any("failed" in event.get("error", "") for event in events)


def test_both_kinds_are_found_in_one_folder(runs: Path, tmp_path: Path) -> None:
    begin(tmp_path, "digits", "linear")
    begin(tmp_path, "copy", "linear")
    models, translators, _, missing = load_models([tmp_path, runs])
    assert [model.name for model in models] == ["linear"]
    assert [translator.name for translator in translators] == ["autoregressive", "momentum"]
    assert missing == [f"left out: 1 of the runs in {tmp_path} neither draw, translate nor write"]


def test_runs_of_one_model_are_told_apart_by_no_more_than_it_takes(runs: Path, tmp_path: Path) -> None:
    config = copied(runs, tmp_path) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"experiment": "multi30k", "seed": 1}))
    names = [translator.name for translator in load_models([runs, tmp_path])[1]]
    assert names == ["autoregressive", "momentum translation", "momentum multi30k"]


def test_an_unfinished_run_translates_but_has_no_test_sentences(runs: Path, tmp_path: Path) -> None:
    run = copied(runs, tmp_path)
    shutil.rmtree(run / "samples")
    _, (translator,), _, missing = load_models([run])
    assert not translator.examples()
    assert missing == [f"no test sentences of en → de: {run} has not been trained to its end"]
    assert load_models([run, runs]).missing == []  # another run has them
    (run / "samples").mkdir()
    (run / "samples" / "steps.jsonl").write_text('{"source": 1')
    (reason,) = load_models([run]).missing
    assert reason.startswith(f"no test sentences of en → de: {run}/samples/steps.jsonl cannot be read: Expecting")


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "it has no vocabulary.model"), (b"{}\n", "is damaged or not a vocabulary")]
)
def test_a_run_without_its_vocabulary_is_refused_or_left_out(
    runs: Path, tmp_path: Path, content: bytes | None, reason: str
) -> None:
    run = copied(runs, tmp_path)
    (run / "vocabulary.model").unlink()
    if content is not None:
        (run / "vocabulary.model").write_bytes(content)
    with pytest.raises(RunError, match=reason):
        load_translation_task(run, "best")
    with pytest.raises(RunError, match=reason):
        load_models([run])
    begin(tmp_path, "digits", "linear")
    _, translators, _, missing = load_models([tmp_path])
    assert not translators
    assert reason in missing[0]

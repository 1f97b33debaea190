"""A translator is trained, kept whole in its run directory, learns from a teacher, and translates lines."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from momentum_transformer.cli import main
from momentum_transformer.data.folder import DataError
from momentum_transformer.experiments.runs import Request, load_task, run_training
from momentum_transformer.experiments.translation import TranslationTask
from momentum_transformer.experiments.translation_scales import TRANSLATION_MODELS, translation_config
from momentum_transformer.experiments.translator import Translator
from momentum_transformer.report.page import write_report
from momentum_transformer.training.run_directory import RunDirectory, RunError

from .toy_language import write_pair

pytest.importorskip("sentencepiece", reason="translation needs sentencepiece")
PIECES = 60


def settings(folder: Path) -> tuple[str, ...]:
    source, target = write_pair(folder, 200)
    return (f"data.source={source}", f"data.target={target}", f"data.pieces={PIECES}")


def train(folder: Path, model: str, *more: str, out: Path | None = None) -> Path:
    request = Request("translation", model, "tiny", 0, (*settings(folder), *more))
    out = out or folder / "runs" / "translation" / model / "tiny-seed0"
    assert run_training(request, out, resume=False)
    return out


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("translation")
    return {model: train(folder, model) for model in ("autoregressive", "momentum")}


def lines_of(run: Path, kind: str) -> list[dict[str, Any]]:
    return [line for line in RunDirectory(run).metrics() if line["kind"] == kind]


@pytest.mark.parametrize("model", TRANSLATION_MODELS)
@pytest.mark.parametrize("corpus", ["multi30k", "iwslt16", "translation"])
def test_every_scale_has_a_configuration(corpus: str, model: str) -> None:
    paper = translation_config(corpus, model, "paper")
    assert (paper.model.width, paper.model.feedforward, paper.model.depth, paper.model.heads) == (278, 507, 5, 2)
    assert (paper.model.beta, paper.model.gamma) == (0.6, 0.6)
    assert (
        translation_config(corpus, model, "tiny").train.steps < translation_config(corpus, model, "small").train.steps
    )


def test_a_run_holds_scores_translations_and_its_vocabulary(trained: dict[str, Path]) -> None:
    run = trained["momentum"]
    assert (run / "vocabulary.model").is_file()
    scored = lines_of(run, "translation")
    assert [(line["refinements"], line["lengths"]) for line in scored] == [
        (0, "predicted"),
        (1, "predicted"),
        (1, "reference"),
    ]
    assert all(0 <= line["bleu"] <= 100 and "version" in line["bleu_signature"] for line in scored)
    assert {line["batch_tokens"] == 1 for line in lines_of(run, "throughput")} == {True, False}
    pairs = RunDirectory(run).read("provenance.json")["data"]["pairs"]
    assert len((run / "samples" / "test.txt").read_text().splitlines()) == pairs["test"]
    shown = [json.loads(line) for line in (run / "samples" / "steps.jsonl").read_text().splitlines()]
    assert all(len(line["steps"]) == 2 for line in shown)


def test_translating_needs_the_run_directory_and_nothing_else(trained: dict[str, Path], tmp_path: Path) -> None:
    task, _, _ = load_task(trained["momentum"], data_dir=tmp_path / "nowhere")
    assert isinstance(task, TranslationTask)
    (translation,) = Translator(task).lines(["A dog runs ."])
    assert translation.steps


def test_a_translation_does_not_depend_on_its_neighbours(trained: dict[str, Path]) -> None:
    for run in trained.values():
        task, _, _ = load_task(run)
        translator = Translator(task)
        lines = ["A dog runs .", "", "Child and small man sees a red house near dog .", "Man"]
        together = [translation.text for translation in translator.lines(lines)]
        assert together == [translator.lines([line])[0].text for line in lines]
        assert together[1] == ""


def test_long_lines_are_split_at_sentences(trained: dict[str, Path]) -> None:
    task, _, _ = load_task(trained["momentum"])
    translator = Translator(task)
    one, other = "Man sees a dog .", "Child runs near house ."
    translator.longest = len(translator.subwords.encode_source(one)) + 2
    (both,) = translator.lines([f"{one} {other}"])
    assert both.text == " ".join(part.text for part in translator.lines([one, other]))
    with pytest.raises(DataError, match=r"input, line 8: a sentence of .* pieces"):
        translator.lines(["A " + "dog " * 100], first=8)


def test_a_line_can_be_watched_step_by_step(trained: dict[str, Path]) -> None:
    for run in trained.values():
        task, _, _ = load_task(run)
        translator = Translator(task, refinements=3)
        for line in ("A dog runs .", " ".join(["Man sees a dog ."] * 9)):
            steps = list(translator.steps(line))
            (whole,) = translator.lines([line])
            assert steps[-1] == whole
            assert [step.steps for step in steps] == [whole.steps[: i + 1] for i in range(len(whole.steps))]
        assert not list(translator.steps(" "))
        assert translator.lines(["\x01"])[0].text == ""  # there is no piece in it


def test_half_a_character_is_named_with_its_line(trained: dict[str, Path]) -> None:
    task, _, _ = load_task(trained["momentum"])
    with pytest.raises(DataError, match=r"text, line 2: .* half a character"):
        Translator(task).lines(["A dog .", "\ud800"], name="text")


def test_an_unknown_script_is_named_with_its_line(trained: dict[str, Path]) -> None:
    task, _, _ = load_task(trained["momentum"])
    with pytest.raises(DataError, match=r"text, line 2: .* script"):
        Translator(task).lines(["A dog .", "狗在跑步"], name="text")


def test_a_student_learns_from_the_teacher_beside_it(trained: dict[str, Path]) -> None:
    folder = trained["autoregressive"].parents[3]
    out = folder / "runs" / "translation" / "linear" / "tiny-seed0,data.teacher=autoregressive"
    train(folder, "linear", "data.teacher=autoregressive", out=out)
    task, _, _ = load_task(out)
    raw, _, _ = load_task(trained["momentum"])
    assert isinstance(task, TranslationTask)
    assert isinstance(raw, TranslationTask)
    assert task.text.train.sources == raw.text.train.sources
    assert task.text.train.targets != raw.text.train.targets
    assert task.text.test == raw.text.test
    assert task.subwords.digest == raw.subwords.digest


def test_a_missing_teacher_is_an_error(trained: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no trained run .*teacher"):
        train(tmp_path, "linear", "data.teacher=nobody", out=tmp_path / "a" / "b" / "c")
    assert not (tmp_path / "a").exists()


def test_a_vocabulary_of_another_run_is_refused(trained: dict[str, Path], tmp_path: Path) -> None:
    from shutil import copytree

    copied = copytree(trained["momentum"], tmp_path / "run")
    source, target = write_pair(tmp_path, 200)
    request = Request(
        "translation", "linear", "tiny", 0, (f"data.source={source}", f"data.target={target}", "data.pieces=50")
    )
    run_training(request, tmp_path / "other", resume=False)
    (copied / "vocabulary.model").write_bytes((tmp_path / "other" / "vocabulary.model").read_bytes())
    task, _, _ = load_task(copied)
    with pytest.raises(DataError, match="vocabulary of another run"):
        Translator(task)


def test_resuming_follows_an_uninterrupted_run(trained: dict[str, Path], tmp_path: Path) -> None:
    folder = trained["momentum"].parents[3]
    asked = Request("translation", "momentum", "tiny", 0, settings(folder))
    whole = [line["loss"] for line in lines_of(trained["momentum"], "validation")]
    again = tmp_path / "again"
    assert run_training(asked, again, resume=False)
    assert [line["loss"] for line in lines_of(again, "validation")] == whole


def run_cli(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    return int(stopped.value.code or 0)


def test_translate_reads_a_file_and_keeps_empty_lines(
    trained: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, out = tmp_path / "text.en", tmp_path / "text.de"
    text.write_text("A dog runs .\n\nMan sleeps .\n")
    assert run_cli("translate", trained["momentum"], text, "--out", out, "--refine", "2") == 0
    written = out.read_text().split("\n")
    assert len(written) == 4
    assert written[1] == ""
    assert "tokens/s" in capsys.readouterr().err


def test_translate_streams_standard_input_and_shows_the_steps(
    trained: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"A dog runs .\n")))
    assert run_cli("translate", trained["momentum"], "--show-steps", "--refine", "2") == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line[:4] for line in shown[:3]] == ["  0:", "  1:", "  2:"]
    assert shown[2][5:] == shown[3]


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"A dog .\n\xff\xfe\n", "line 2: not UTF-8"), ("a\n狗在跑步\n".encode(), "line 2: .*script")],
)
def test_bad_lines_are_named(
    trained: dict[str, Path], tmp_path: Path, content: bytes, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import re

    text = tmp_path / "text.en"
    text.write_bytes(content)
    assert run_cli("translate", trained["momentum"], text) == 2
    error = capsys.readouterr().err
    assert re.search(message, error)
    assert error.count("\n") == 1


def test_the_source_and_target_flags_name_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = write_pair(tmp_path, 40)
    target.write_text("".join(target.read_text().splitlines(keepends=True)[:-1]))
    flags = ["--source", source, "--target", target, "--scale", "tiny", "--out", tmp_path / "run"]
    assert run_cli("train", "translation", *flags) == 2
    assert "40" in (error := capsys.readouterr().err)
    assert "39" in error
    assert not (tmp_path / "run").exists()


def test_the_report_has_the_table_the_curve_and_the_steps(trained: dict[str, Path], tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for model, path in trained.items():  # a run of the study: the toy language stands in for Multi30k
        place = runs / "multi30k" / model / "tiny-seed0"
        place.parent.mkdir(parents=True)
        from shutil import copytree

        copytree(path, place)
        config = json.loads((place / "config.json").read_text())
        config |= {"experiment": "multi30k", "settings": []}
        (place / "config.json").write_text(json.dumps(config))
    page, _ = write_report([runs], tmp_path / "report")
    html = page.read_text()
    assert "Table 5" in html
    assert "22.11" in html  # the paper's momentum
    assert "Step by step" in html

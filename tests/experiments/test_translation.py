"""A translator is trained, kept whole in its run directory, learns from a teacher, and translates lines."""

import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from momentum_transformer.cli import main
from momentum_transformer.commands.reproduce import run_study
from momentum_transformer.data.folder import DataError
from momentum_transformer.data.parallel_text import read_pair
from momentum_transformer.data.subwords import Subwords
from momentum_transformer.experiments.configuration import paths
from momentum_transformer.experiments.experiment import Study, Variant
from momentum_transformer.experiments.runs import Request, load_task, run_training
from momentum_transformer.experiments.study_runs import Plan
from momentum_transformer.experiments.trained_tasks import load_translation_task
from momentum_transformer.experiments.translation.text_translator import Translator
from momentum_transformer.experiments.translation.translation_scales import (
    GATED_STUDENTS,
    TRANSLATION_MODELS,
    translation_config,
)
from momentum_transformer.experiments.translation.translation_task import TranslationTask, make_translator
from momentum_transformer.layers.block import Attention
from momentum_transformer.layers.paper_mixers import LinearAttention
from momentum_transformer.report.page import write_report
from momentum_transformer.training.run_directory import RunDirectory, RunError

from .toy_language import write_pair

pytest.importorskip("sentencepiece", reason="translation needs sentencepiece")
PIECES = 60
FLAT = ("train.schedule=constant",)  # a schedule that does not depend on how many steps there are


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
    return {model: train(folder, model) for model in ("autoregressive", "momentum", "momentum-delta")}


def lines_of(run: Path, kind: str) -> list[dict[str, Any]]:
    return [line for line in RunDirectory(run).metrics() if line["kind"] == kind]


@pytest.mark.parametrize("model", TRANSLATION_MODELS)
@pytest.mark.parametrize("corpus", ["multi30k", "iwslt16", "translation"])
def test_every_scale_has_a_configuration(corpus: str, model: str) -> None:
    paper = translation_config(corpus, model, "paper")
    assert (paper.model.width, paper.model.feedforward, paper.model.depth, paper.model.heads) == (278, 507, 5, 2)
    coefficients = {name: value for name, value in paths(paper.model).items() if name in ("beta", "gamma")}
    assert coefficients == ({"beta": 0.6, "gamma": 0.6} if "momentum" in model else {})
    assert (
        translation_config(corpus, model, "tiny").train.steps < translation_config(corpus, model, "small").train.steps
    )


@pytest.mark.parametrize("model", GATED_STUDENTS)
def test_tokens_that_decide_coefficients_see_positions_and_the_source_by_linear_attention(model: str) -> None:
    config = translation_config("multi30k", model, "tiny")
    choices = {
        name.split(".")[-2]: part.choice
        for name, part in make_translator(config).named_modules()
        if isinstance(part, Attention)
    }
    assert choices == {"own": config.model.make_mixer(), "positional": LinearAttention(), "cross": LinearAttention()}


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


def test_a_student_learns_from_the_teacher_with_its_other_settings(tmp_path: Path) -> None:
    asked = (*settings(tmp_path), "train.steps=4")
    runs = tmp_path / "runs"
    for model, more in (("autoregressive", ()), ("linear", ("data.teacher=autoregressive",))):
        request = Request("translation", model, "tiny", 0, (*asked, *more))
        run_training(request, request.directory(runs), resume=False)
    task = load_translation_task(request.directory(runs), "best")
    assert task.training_text.sources == task.text.train.sources
    assert task.training_text.targets != task.text.train.targets
    shutil.rmtree(runs / "translation" / "autoregressive")
    assert next(task.test(0, 1)).source.numel()  # scoring needs no teacher


def test_an_untrained_teacher_is_refused(trained: dict[str, Path], tmp_path: Path) -> None:
    teacher = shutil.copytree(trained["autoregressive"], tmp_path / "teacher")
    lines = (teacher / "metrics.jsonl").read_text().splitlines(keepends=True)
    (teacher / "metrics.jsonl").write_text("".join(line for line in lines if '"end"' not in line))
    with pytest.raises(RunError, match=r"no trained run .*teacher"):
        train(tmp_path, "linear", f"data.teacher={teacher}", out=tmp_path / "student")
    assert not (tmp_path / "student").exists()


def test_a_missing_teacher_is_an_error(trained: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no trained run .*teacher"):
        train(tmp_path, "linear", "data.teacher=nobody", out=tmp_path / "a" / "b" / "c")
    assert not (tmp_path / "a").exists()


@pytest.mark.slow
def test_students_wait_for_their_teacher_when_several_runs_go_side_by_side(tmp_path: Path) -> None:
    student = Variant("linear", ("data.teacher=autoregressive",), waits=True)
    study = Study("toy", "Toy", "translation", (Variant("autoregressive"), student))
    asked = (*settings(tmp_path), "train.steps=4")
    assert run_study(Plan(study, "tiny", 1, tmp_path / "runs", settings=asked), jobs=2)
    ended = {path.name for path in (tmp_path / "runs" / "translation").iterdir()}
    assert ended == {"linear", "autoregressive"}


def test_a_vocabulary_of_another_run_is_refused(trained: dict[str, Path], tmp_path: Path) -> None:
    copied = shutil.copytree(trained["momentum"], tmp_path / "run")
    other = Subwords.train(read_pair(*write_pair(tmp_path, 200, seed=1)), pieces=PIECES)
    other.save(copied / "vocabulary.model")
    with pytest.raises(RunError, match="not the vocabulary that this run was trained with"):
        load_translation_task(copied, "best")


def test_resuming_follows_an_uninterrupted_run(trained: dict[str, Path], tmp_path: Path) -> None:
    folder = trained["momentum"].parents[3]
    asked = Request("translation", "momentum", "tiny", 0, settings(folder))
    half = Request("translation", "momentum", "tiny", 0, (*asked.settings, "train.steps=4", *FLAT))
    whole = Request("translation", "momentum", "tiny", 0, (*asked.settings, *FLAT))
    run_training(whole, tmp_path / "whole", resume=False)
    run_training(half, tmp_path / "half", resume=False)
    config = json.loads((tmp_path / "whole" / "config.json").read_text())
    (tmp_path / "half" / "config.json").write_text(json.dumps(config))  # as if it had been interrupted there
    run_training(whole, tmp_path / "half", resume=True)
    assert lines_of(tmp_path / "half", "validation")[-1]["step"] == 8
    assert [line["loss"] for line in lines_of(tmp_path / "half", "validation")] == [
        line["loss"] for line in lines_of(tmp_path / "whole", "validation")
    ]


def test_half_precision_trains(tmp_path: Path) -> None:
    run = train(tmp_path, "adaptive-momentum", "train.precision=bfloat16", "train.steps=2")
    assert lines_of(run, "end")


@pytest.mark.parametrize("corpus", ["multi30k", "iwslt16"])
def test_a_corpus_with_text_of_its_own_takes_no_other(corpus: str, tmp_path: Path) -> None:
    request = Request(corpus, "linear", "tiny", 0, settings(tmp_path))
    with pytest.raises(DataError, match="for yours: momentum train translation"):
        run_training(request, tmp_path / "run", resume=False)


def test_sources_without_pieces_and_tiny_texts_are_named(tmp_path: Path) -> None:
    source, target = write_pair(tmp_path, 200)
    lines = source.read_text().splitlines()
    lines[7] = "\x01"
    source.write_text("\n".join(lines) + "\n")
    files = (f"data.source={source}", f"data.target={target}", f"data.pieces={PIECES}")
    with pytest.raises(DataError, match=r"text, pair \d+: the source has no piece"):
        run_training(Request("translation", "linear", "tiny", 0, files), tmp_path / "run", resume=False)
    source, target = write_pair(tmp_path, 15, seed=2)
    files = (f"data.source={source}", f"data.target={target}", "data.pieces=40")
    with pytest.raises(DataError, match="15 pairs are too few"):
        run_training(Request("translation", "linear", "tiny", 0, files), tmp_path / "run", resume=False)


def test_a_batch_too_small_for_its_shards_is_named_at_the_first_step(tmp_path: Path) -> None:
    request = Request("translation", "linear", "tiny", 0, (*settings(tmp_path), "train.accumulate=64"))
    with pytest.raises(DataError, match="cannot be split among 64"):
        run_training(request, tmp_path / "run", resume=False)


def test_a_run_whose_scoring_was_interrupted_is_scored_again(tmp_path: Path) -> None:
    request = Request("translation", "linear", "tiny", 0, settings(tmp_path))
    study = Study("toy", "toy", "translation", (Variant("linear", request.settings),))
    assert run_study(Plan(study, "tiny", 1, tmp_path / "runs"))
    (metrics,) = (tmp_path / "runs").rglob("metrics.jsonl")
    lines = metrics.read_text().splitlines(keepends=True)
    metrics.write_text("".join(line for line in lines if '"translation"' not in line and '"concluded"' not in line))
    assert run_study(Plan(study, "tiny", 1, tmp_path / "runs"))
    assert '"translation"' in metrics.read_text()


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
    [(b"A dog .\n\xff\xfe\n", "line 2: not UTF-8"), ("A dog .\n狗在跑步\n".encode(), "line 2: .*script")],
)
def test_bad_lines_are_named(
    trained: dict[str, Path], tmp_path: Path, content: bytes, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text.en"
    text.write_bytes(content)
    assert run_cli("translate", trained["momentum"], text) == 2
    error = capsys.readouterr().err
    assert re.search(message, error)
    assert error.count("\n") == 1


def test_lines_before_a_bad_one_are_translated_all_the_same(
    trained: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, out = tmp_path / "text.en", tmp_path / "text.de"
    text.write_text("A dog .\n狗在跑步\nMan .\n")
    assert run_cli("translate", trained["momentum"], text, "--out", out) == 2
    assert out.read_text().count("\n") == 1


def test_a_text_is_never_overwritten_by_its_translation(
    trained: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text.en"
    text.write_text("A dog .\n")
    assert run_cli("translate", trained["momentum"], text, "--out", text) == 2
    assert text.read_text() == "A dog .\n"
    kept = tmp_path / "kept.de"
    kept.write_text("kept\n")
    assert run_cli("translate", trained["momentum"], tmp_path / "nowhere", "--out", kept) == 2
    assert kept.read_text() == "kept\n"
    assert run_cli("translate", trained["autoregressive"], text, "--refine", "2") == 2
    assert "nothing to --refine" in capsys.readouterr().err


def test_a_reader_that_has_had_enough_ends_it_quietly(trained: dict[str, Path]) -> None:
    command = [sys.executable, "-m", "momentum_transformer", "translate", str(trained["momentum"])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"A dog .\n")
        process.stdin.flush()
        assert process.stdout.readline().endswith(b"\n")  # at once, while standard input is still open
        process.stdout.close()
        process.stdin.write(b"A man .\n" * 2000)
        process.stdin.close()
        assert b"Traceback" not in process.stderr.read()
        assert process.wait() == 0


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
        shutil.copytree(path, place)
        config = json.loads((place / "config.json").read_text())
        config |= {"experiment": "multi30k", "settings": []}
        (place / "config.json").write_text(json.dumps(config))
    page, _ = write_report([runs], tmp_path / "report")
    html = page.read_text()
    assert "Table 5" in html
    assert "22.11" in html  # the paper's momentum
    assert "Step by step" in html

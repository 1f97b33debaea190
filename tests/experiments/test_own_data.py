"""Your own pictures and tables, from the command line: train, draw, predict, evaluate; and what they refuse."""

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from momentum_transformer.cli import main
from momentum_transformer.commands.lines import line_batches
from momentum_transformer.data.png import write_grey_png
from momentum_transformer.experiments.labelling import TableTask, f1_scores, table_config
from momentum_transformer.experiments.runs import load_task
from momentum_transformer.training.run_directory import RunDirectory

COLOURS = ("red", "green", "blue")


def run(*words: object) -> int:
    with pytest.raises(SystemExit) as stopped:
        main([str(word) for word in words])
    assert isinstance(stopped.value.code, int)
    return stopped.value.code


def write_pictures(folder: Path, count: int = 20) -> Path:
    folder.mkdir()
    for i in range(count):
        (folder / f"{i:02}.png").write_bytes(write_grey_png(np.full((8, 8), 8 * i, np.uint8)))
    return folder


def write_table(path: Path, rows: int = 90) -> Path:
    lines = [f"{COLOURS[i % 3]} thing number {i},{COLOURS[i % 3]}" for i in range(rows)]
    path.write_text("text,label\n" + "\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("table")
    source = write_table(folder / "colours.csv")
    words = ["train", "table", "--source", source, "--scale", "tiny", "--model", "momentum", "--out", folder / "run"]
    settings = ["train.steps=60", "train.learning_rate=0.01", "train.batch_size=16"]
    assert run(*words, *(word for setting in settings for word in ("--set", setting))) == 0
    return folder


def test_pictures_of_your_own_are_learned_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("PIL")
    source, out = write_pictures(tmp_path / "pictures"), tmp_path / "run"
    settings = ("--set", "data.colour=true")
    assert run("train", "images", "--source", source, "--scale", "tiny", "--out", out, *settings) == 0
    assert (out / "samples" / "grid.png").is_file()
    assert run("generate", out, "--count", 2, "--offset", 8, "--out", tmp_path / "grid.png") == 0
    assert (tmp_path / "grid.png").is_file()
    sample = (out / "samples" / "grid.png").read_bytes()
    assert run("generate", out, "--count", 2, "--gif", tmp_path / "drawing.gif") == 0
    assert (out / "samples" / "grid.png").read_bytes() == sample  # what the report shows
    assert (out / "samples" / "drawn.png").is_file()
    capsys.readouterr()
    assert run("evaluate", out, "--split", "test") == 0
    assert "bits_per_dim: " in capsys.readouterr().out


def test_a_table_of_your_own_is_learned_and_scored(labelled: Path) -> None:
    lines = RunDirectory(labelled / "run").metrics()
    (test,) = (line for line in lines if line["kind"] == "test")
    assert test["accuracy"] > 0.8
    assert test["f1"] > 0.8
    (confusion,) = (line for line in lines if line["kind"] == "confusion")
    counts = np.array(confusion["counts"])
    assert confusion["labels"] == sorted(COLOURS)
    assert counts.sum(1).tolist() == [3, 3, 3]
    assert counts.trace() / counts.sum() == pytest.approx(test["accuracy"])
    assert np.mean(list(confusion["f1"].values())) == pytest.approx(test["f1"])
    assert RunDirectory(labelled / "run").read("labels.json")["labels"] == sorted(COLOURS)


def test_f1_is_the_harmonic_mean_of_precision_and_recall() -> None:
    counts = torch.tensor([[3, 1, 0], [2, 4, 0], [0, 0, 0]])
    precision, recall = torch.tensor([3 / 5, 4 / 5]), torch.tensor([3 / 4, 4 / 6])
    wanted = [*(2 * precision * recall / (precision + recall)).tolist(), 0.0]  # a class that never occurs
    assert f1_scores(counts).tolist() == pytest.approx(wanted)
    assert f1_scores(counts / counts.sum()).tolist() == pytest.approx(wanted)


def test_predict_labels_lines_tables_and_standard_input(
    labelled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["green thing number 1", "red thing number 2", "blue thing number 3"]
    (tmp_path / "lines.txt").write_text("\n".join(words) + "\n")
    assert run("predict", labelled / "run", tmp_path / "lines.txt", "--batch", 2) == 0
    answers = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [label for label, _ in answers] == ["green", "red", "blue"]
    assert all(1 / 3 < float(share) <= 1 for _, share in answers)

    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"words": word}) + "\n" for word in words))
    out = tmp_path / "labels.jsonl"
    options = ("--text-column", "words", "--format", "jsonl", "--out", out)
    assert run("predict", labelled / "run", tmp_path / "rows.jsonl", *options) == 0
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [answer["label"] for answer in found] == ["green", "red", "blue"]
    for answer, (_, share) in zip(found, answers, strict=True):
        assert sum(answer["probabilities"].values()) == pytest.approx(1)
        assert answer["probability"] == pytest.approx(float(share), abs=1e-4)

    for name in ((), ("-",)):
        standard = io.TextIOWrapper(io.BytesIO("\n".join(words).encode()))
        monkeypatch.setattr(sys, "stdin", standard)
        assert run("predict", labelled / "run", *name) == 0
        assert [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()] == ["green", "red", "blue"]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_is_told_to_type_and_a_pipe_is_not(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = io.TextIOWrapper(io.BytesIO(b"red thing\n"))
    monkeypatch.setattr(typed, "isatty", lambda: terminal)
    monkeypatch.setattr(sys, "stdin", typed)
    assert list(line_batches(None, 8)) == [["red thing"]]
    assert capsys.readouterr().err == ("type lines; Ctrl-D ends\n" if terminal else "")


def test_a_label_does_not_depend_on_the_lines_beside_it(labelled: Path) -> None:
    from momentum_transformer.commands.predicting import classify

    task, _, _ = load_task(labelled / "run")
    assert isinstance(task, TableTask)
    task.model.eval()
    texts = ["red", "a far longer line that is cut off somewhere", "blue thing"]
    alone = torch.cat([classify(task, [text]) for text in texts])
    torch.testing.assert_close(classify(task, texts), alone, atol=1e-5, rtol=0)


def test_predicting_needs_the_run_alone_and_resuming_the_same_table(
    labelled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_table(tmp_path / "t.csv")
    words = ["train", "table", "--source", source, "--scale", "tiny", "--out", tmp_path / "run"]
    assert run(*words) == 0
    source.write_text("text,label\n" + "x,one\ny,two\n" * 9)
    metrics = tmp_path / "run" / "metrics.jsonl"
    lines = metrics.read_text().splitlines(keepends=True)
    metrics.write_text("".join(line for line in lines if '"concluded"' not in line))  # as if it had been stopped
    capsys.readouterr()
    assert run(*words, "--resume") == 2
    assert "has other labels than the run in" in capsys.readouterr().err
    source.unlink()
    (tmp_path / "line.txt").write_text("red\n")
    assert run("predict", tmp_path / "run", tmp_path / "line.txt") == 0


def test_what_predict_cannot_do_is_said_in_one_line(
    labelled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, table = tmp_path / "lines.txt", tmp_path / "t.csv"
    lines.write_text("red thing\n\nblue thing\n")
    table.write_text("words\nred\n")
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for part in ("config.json", "provenance.json", "checkpoint"):
        (damaged / part).symlink_to(labelled / "run" / part)
    (damaged / "labels.json").write_text('{"labels": ["red"]}')
    cases = {
        ("predict", labelled / "run", lines): f"{lines}, line 2: there is no text to label",
        ("predict", labelled / "run", table): f"{table} has no column 'text'; it has 'words'",
        ("predict", labelled / "run", tmp_path / "nowhere"): f"there is no file {tmp_path / 'nowhere'}",
        ("predict", labelled / "run", lines, "--format", "xml"): "unknown format 'xml'",
        ("predict", labelled / "run", lines, "--batch", "0"): "--batch must be 1 or more",
        ("predict", labelled / "run", lines, "--text-column", "a"): "--text-column is for tables",
        ("predict", labelled / "run", lines, "--out", lines): f"--out {lines} is the text itself",
        ("predict", labelled / "run", lines, "--checkpoint", "worst"): "unknown checkpoint 'worst'",
        ("predict", tmp_path, lines): f"{tmp_path} is not a run directory",
        ("predict", damaged, lines): f"{damaged / 'labels.json'} is damaged",
    }
    for words, message in cases.items():
        capsys.readouterr()
        assert run(*words) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"momentum: {message}")
        assert error.count("\n") == 1


def test_what_training_on_your_own_data_cannot_do_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = write_table(tmp_path / "t.csv")
    cases = {
        ("table",): "which table? momentum train table --source data.csv",
        ("images",): "which pictures? momentum train images --source FOLDER",
        ("table", "--source", tmp_path / "no.csv"): f"there is no file {tmp_path / 'no.csv'}",
        ("table", "--source", table, "--text-column", "body"): f"{table} has no column 'body'",
        ("table", "--source", table, "--label-column", "text"): "--text-column and --label-column must be two columns",
        ("table", "--source", table, "--scale", "paper"): "table has no scale 'paper'",
        ("table", "--source", table, "--set", "model.heads=7"): "width must be a multiple of heads",
        ("images", "--source", tmp_path / "no"): f"there is no folder {tmp_path / 'no'}",
        ("images", "--source", tmp_path): f"{tmp_path} has no pictures whose names end in",
        ("images", "--source", tmp_path, "--set", "data.size=1"): "data.size must be from 2 to 256 pixels",
    }
    for words, message in cases.items():
        capsys.readouterr()
        assert run("train", *words, "--out", tmp_path / "run") == 2
        error = capsys.readouterr().err
        assert error.startswith(f"momentum: {message}")
        assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_every_model_has_a_table_classifier(tmp_path: Path) -> None:
    from momentum_transformer.experiments.labelling import TABLE

    source = write_table(tmp_path / "t.csv")
    for model in TABLE.models:
        config = table_config(model, "tiny")
        config = type(config)(config.model, type(config.data)(source=str(source), length=16), config.train)
        task = TableTask(config, seed=0)
        task.at(tmp_path / "run")
        score = task.score(task.model, task.batch(0, 0, 1))
        assert torch.isfinite(score.loss)


def test_a_long_path_of_a_table_makes_a_short_name_of_a_run(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120) / ("y" * 120)
    folder.mkdir(parents=True)
    source = write_table(folder / "t.csv")
    assert run("train", "table", "--source", source, "--scale", "tiny", "--runs", tmp_path / "runs") == 0
    (found,) = (tmp_path / "runs" / "table" / "momentum").iterdir()
    assert len(found.name) < 60


def test_a_folder_and_a_run_of_another_kind_are_refused_with_what_to_do_instead(
    labelled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("predict", labelled / "run", labelled) == 2
    assert f"{labelled} is a folder, not a file of text; name a file in it" in capsys.readouterr().err
    assert run("generate", labelled / "run") == 2
    assert f", or use this one: momentum predict {labelled / 'run'}" in capsys.readouterr().err

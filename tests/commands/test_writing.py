"""`momentum generate` of a text run: the run directory is enough, and one line says what cannot be."""

import io
import json
import shutil
from pathlib import Path

import pytest

from momentum_transformer.cli import main
from momentum_transformer.commands.writing import until
from momentum_transformer.experiments.prompts import readable

WORDS = "To be, or not to be: that is the question.\n" * 60


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(list(words))
    assert isinstance(stopped.value.code, int)
    return stopped.value.code


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One run of each kind of unit, of a text that is gone when they write."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "my.txt").write_text(WORDS)
    settings = {"bytes": [], "characters": ["--set", "data.units=characters"], "pieces": ["--set", "data.pieces=270"]}
    made = {}
    for units, more in settings.items():
        made[units] = folder / units
        words = ["train", "text", "--source", str(folder / "my.txt"), "--scale", "tiny", "--out", str(made[units])]
        assert run(*words, "--model", "gated-delta", "--set", "data.validation=0.05", *more) == 0
    (folder / "my.txt").unlink()
    return made


@pytest.mark.parametrize("units", ["bytes", "characters", "pieces"])
def test_a_prompt_goes_on_the_same_by_seed(
    units: str, runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    def written(seed: int) -> str:
        assert run("generate", str(runs[units]), "--prompt", "To be", "--tokens", "40", "--seed", str(seed)) == 0
        found = capsys.readouterr()
        assert "40 tokens in " in found.err
        assert " tokens/s, a state of " in found.err
        assert found.err.count("\n") == 1
        return found.out

    first = written(3)
    assert first.startswith("To be")
    assert len(first) > 6
    assert first == written(3) != written(4)


def test_typed_lines_take_turns_with_the_model(
    runs: dict[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(*lines: str) -> tuple[str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        assert run("generate", str(runs["characters"]), "--prompt", "-", "--tokens", "10") == 0
        found = capsys.readouterr()
        return found.out, found.err

    alone, _ = said("To be")
    both, err = said("To be", "not")
    assert both.startswith(alone)
    assert both.removeprefix(alone).startswith("not")
    assert err.startswith("20 tokens in ")
    _, err = said("Tö", "be")  # one line that cannot be read does not end it
    assert "momentum: --prompt: 'ö' (character 2) is not in the vocabulary" in err
    assert "10 tokens in " in err
    assert said() == ("", "")


def test_training_ends_with_the_command_that_uses_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my.txt").write_text(WORDS)
    words = ["train", "text", "--source", str(tmp_path / "my.txt"), "--scale", "tiny", "--out", str(tmp_path / "a b")]
    assert run(*words, "--set", "data.validation=0.05") == 0
    assert capsys.readouterr().out.endswith(f"use it: momentum generate '{tmp_path}/a b' --prompt -\n")


def test_a_stop_string_may_name_a_line_break(runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    words = ["generate", str(runs["characters"]), "--prompt", "To be", "--tokens", "200", "--temperature", "5"]
    assert run(*words) == 0
    whole = capsys.readouterr().out
    assert run(*words, "--stop", "\\n") == 0
    assert capsys.readouterr().out == whole[: whole.index("\n") + 1]
    assert whole.count("\n") > 1


def test_each_evaluation_leaves_a_sample(runs: dict[str, Path]) -> None:
    lines = [json.loads(line) for line in (runs["bytes"] / "samples.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 3]
    assert all(isinstance(line["text"], str) and line["text"] for line in lines)


@pytest.mark.parametrize(
    ("units", "words", "message"),
    [
        ("characters", ["--prompt", "Tö"], "momentum: --prompt: 'ö' (character 2) is not in the vocabulary"),
        ("bytes", ["--prompt", ""], "momentum: --prompt must not be empty"),
        ("bytes", ["--tokens", "0"], "momentum: --tokens must be 1 or more, not 0"),
        ("bytes", ["--top-p", "2"], "momentum: --top-p must be above 0 and at most 1"),
        ("bytes", ["--temperature", "-1"], "momentum: --temperature must be 0 or more"),
        ("bytes", ["--checkpoint", "bets"], "momentum: unknown checkpoint 'bets'; did you mean 'best'?"),
        ("bytes", ["--gif", "x.gif"], "momentum: --gif is not for text: momentum generate "),
    ],
)
def test_what_cannot_be_written_is_said_in_one_line(
    units: str, words: list[str], message: str, runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("generate", str(runs[units]), *words) == 2
    error = capsys.readouterr().err
    assert error.startswith(message)
    assert error.count("\n") == 1


def test_a_run_without_its_vocabulary_says_so(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(runs["characters"], tmp_path / "run")
    (tmp_path / "run" / "vocabulary.json").write_text("{")
    assert run("generate", str(tmp_path / "run")) == 2
    assert "it is the vocabulary of the run: train again" in capsys.readouterr().err


def test_text_ends_before_the_stop_string_wherever_it_is_cut() -> None:
    for size in (1, 2, 3, 7):
        parts = ["one two END three"[i : i + size] for i in range(0, 17, size)]
        assert "".join(until(parts, "END")) == "one two "
        assert "".join(until(parts, "ENDE")) == "one two END three"
        assert "".join(until(parts, "")) == "one two END three"
    assert list(until(["a", "b"], "xyz")) == ["a", "b", ""]  # nothing is held back without need


def test_characters_come_whole_and_nothing_moves_the_cursor() -> None:
    tokens = [bytes([byte]) for byte in "aü€\x1b[2J\n".encode()]
    assert "".join(readable(tokens)) == "aü€\ufffd[2J\n"
    assert "".join(readable([b"\xe2\x82"])) == "\ufffd"

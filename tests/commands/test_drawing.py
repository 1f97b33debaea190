"""`momentum generate`: grids, animations and single pictures from a run directory, and one line for what cannot be."""

from pathlib import Path

import numpy as np
import pytest

from momentum_transformer.data.images import load_images, pooled
from momentum_transformer.experiments.runs import Request, run_training
from tests.test_cli import run

Image = pytest.importorskip("PIL.Image", reason="pillow is not installed")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("digits") / "run"
    assert run_training(Request("digits", "adaptive-momentum", "tiny"), out, resume=False)
    return out


def load(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image)


def test_generate_writes_what_was_asked_for(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["generate", str(trained), "--count", "5", "--seed", "1", "--out", str(tmp_path / "grid.png")]
    words += ["--gif", str(tmp_path / "drawing.gif"), "--singles", str(tmp_path / "singles")]
    assert run(*words) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("drew 5 pictures in ")
    assert len(shown.splitlines()) == 3
    assert load(tmp_path / "grid.png").shape == (2 * 58 + 2, 3 * 58 + 2, 3)
    with Image.open(tmp_path / "drawing.gif") as animation:
        assert animation.n_frames == 17
    assert len(list((tmp_path / "singles").iterdir())) == 5


def test_the_grid_goes_into_the_run_directory_by_default_beside_its_sample(trained: Path) -> None:
    before = (trained / "samples" / "grid.png").read_bytes()
    assert run("generate", str(trained), "--count", "4", "--temperature", "0.5") == 0
    assert (trained / "samples" / "grid.png").read_bytes() == before
    assert (trained / "samples" / "drawn.png").read_bytes() != before


def test_offset_completes_test_images(trained: Path, tmp_path: Path) -> None:
    words = ["generate", str(trained), "--count", "3", "--offset", "8", "--out", str(tmp_path / "grid.png")]
    assert run(*words, "--singles", str(tmp_path)) == 0
    wanted = pooled(load_images("digits").test.images, 2)
    for i in range(3):
        assert np.array_equal(load(tmp_path / f"00{i}.png")[:2, :, 0], wanted[i, :2, :, 0].numpy())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--count", "0"], "--count must be 1 or more and --temperature 0 or more, not 0 and 1.0"),
        (["--temperature", "-1"], "--count must be 1 or more and --temperature 0 or more, not 64 and -1.0"),
        (["--temperature", "nan"], "--count must be 1 or more and --temperature 0 or more, not 64 and nan"),
        (["--offset", "16"], "--offset must be 0 to 15, the bytes of a picture, not 16"),
        (["--offset", "8", "--count", "298"], "--count must be at most 297, the test images, not 298"),
        (["--out", "grid.jpg"], "grid.jpg must end in .png"),
        (["--gif", "drawing.png"], "drawing.png must end in .gif"),
        (["--checkpoint", "bst"], "unknown checkpoint 'bst'; did you mean 'best'?"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_one_line(
    words: list[str],
    message: str,
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("generate", str(trained), *words) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"momentum: {message}")
    assert error.count("\n") == 1


def test_a_run_of_another_experiment_draws_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = ("train.steps=1",)
    run_training(Request("copy", "linear", "tiny", 0, settings), tmp_path / "run", resume=False)
    assert run("generate", str(tmp_path / "run"), "--out", str(tmp_path / "grid.png")) == 2
    assert "is a run of copy, which draws no pictures; take a run of digits, " in capsys.readouterr().err
    assert run("generate", str(tmp_path / "nowhere")) == 2
    assert "is not a run directory" in capsys.readouterr().err

"""The command line: one clear line and exit code 2 for what cannot be done, and a fast --help."""

import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from momentum_transformer import __version__
from momentum_transformer.cli import main
from momentum_transformer.experiments import EXPERIMENTS, REPRODUCTIONS
from momentum_transformer.options import Command


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(list(words))
    assert isinstance(stopped.value.code, int)
    return stopped.value.code


def test_train_evaluate_and_report_in_one_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = str(tmp_path / "runs")
    assert run("train", "copy", "--model", "linear", "--scale", "tiny", "--seed", "3", "--runs", runs) == 0
    directory = tmp_path / "runs" / "copy" / "linear" / "tiny-seed3"
    assert f"finished: {directory}" in capsys.readouterr().out
    assert run("evaluate", str(directory)) == 0
    assert "accuracy: 0." in capsys.readouterr().out
    assert run("report", runs, "--out", str(tmp_path / "report")) == 0
    assert f"report: {tmp_path / 'report' / 'index.html'}" in capsys.readouterr().out


def test_list_names_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list") == 0
    shown = capsys.readouterr().out
    first = [line.split()[0] for line in shown.splitlines() if line and not line.startswith(" ")]
    assert {*EXPERIMENTS, *REPRODUCTIONS} <= set(first)  # whole names
    assert max(map(len, shown.splitlines())) <= 80
    assert shown.count("\n") <= 2 * 24  # two screens
    assert "…" not in shown


@pytest.mark.parametrize("name", ["copy", "text", "gap", "lra-listops"])
def test_list_of_one_name_has_the_rest(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list", name) == 0
    shown = capsys.readouterr().out
    if name in EXPERIMENTS:
        words = shown.replace(",", " ").split()
        assert set(EXPERIMENTS[name].models) <= set(words)
        assert {"tiny", "small", "medium", "paper", "--set"} <= set(words)
        assert any(word.startswith("train.learning_rate=") for word in words)
    if name in REPRODUCTIONS:
        assert f"{len(REPRODUCTIONS[name].lines)} runs per seed" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_the_version_is_one_line_and_does_not_wait_for_torch() -> None:
    program = "import sys\nfrom momentum_transformer.cli import main\ntry:\n    main(['--version'])\n"
    program += "except SystemExit:\n    assert 'torch' not in sys.modules\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"momentum-transformer {__version__}\n"), done.stderr


@pytest.mark.parametrize(
    ("words", "shown", "hidden"),
    [
        (["train", "copy"], {"--model", "--set"}, {"--source", "--target", "--fidelity"}),
        (["train"], {"--model"}, {"--source", "--fidelity"}),
        (["train", "text"], {"--source"}, {"--target", "--fidelity"}),
        (["train", "--seed", "1", "translation"], {"--source", "--target"}, {"--fidelity"}),
        (["train", "lra-text"], {"--fidelity"}, {"--source"}),
        (["generate"], {"--count", "--gif", "--temperature", "--prompt", "--stop"}, set()),
        (["reproduce", "copy"], {"--jobs"}, {"--fidelity"}),
        (["reproduce", "lra"], {"--jobs", "--fidelity"}, set()),
    ],
)
def test_options_are_shown_where_they_apply(
    words: list[str], shown: set[str], hidden: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words, "--help") == 0
    found = capsys.readouterr().out
    assert all(option in found for option in shown)
    assert not any(option in found for option in hidden)


def test_of_many_processes_one_speaks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    assert run("train", "cpy") == run("train", "copy", "--sed", "1") == 2
    assert capsys.readouterr().err == ""
    program = "from momentum_transformer.commands.dispatch import CONSOLE; CONSOLE.print('spoken')"
    for rank, said in (("0", "spoken\n"), ("1", "")):
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, "RANK": rank}
        )
        assert done.stdout == said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trian"], "momentum: unknown command 'trian'; did you mean 'train'?"),
        (["train", "copy", "--modle", "x"], "momentum: unknown option '--modle'; did you mean '--model'?"),
        (["generate", "--promt", "x"], "momentum: unknown option '--promt'; did you mean '--prompt'?"),
        (["generate", "r/text", "--cuont", "4"], "momentum: unknown option '--cuont'; did you mean '--count'?"),
        (["--version", "extra"], "momentum: --version stands alone, without 'extra'"),
        (["version"], "momentum: unknown command 'version'; did you mean '--version'?"),
        (
            ["train", "text", "--source", "a", "--source", "b"],
            "momentum: --source is given more than once; give it once, with all that it takes behind it\n",
        ),
        (["train", "copy", "--seed=1", "--seed", "2"], "momentum: --seed is given more than once; give it once\n"),
        (["train", "text", "--scale", "medum"], "momentum: unknown scale 'medum' (known: tiny, small, paper)\n"),
        (["train", "copy", "--out", ""], "momentum: --out is empty; name a place"),
        (["train", "copy", "--source", "x"], "momentum: --source is not for copy: momentum train copy --help"),
        ([], "momentum: which command? one of list, train, "),
        (["--verison"], "momentum: unknown option '--verison'; did you mean '--version'?"),
        (["train", "txt", "--source", "x"], "momentum: unknown experiment 'txt'; did you mean 'text'?"),
        (["train", "copy", "--seed", "x"], "momentum: --seed must be a whole number, not 'x'"),
        (["generate", "--prompt", "a", "--top-p", "x"], "momentum: --top-p must be a number, not 'x'"),
        (["train", "copy", "--seed"], "momentum: Missing value for argument '--seed'"),
        (["train", "copy", "more"], "momentum: Unrecognized options: more"),
        (["list", "cpy"], "momentum: unknown experiment or study 'cpy'; did you mean 'copy'?"),
        (["generate", "--prompt", "x", "--gif", "x"], "momentum: --gif is not for text: momentum generate --help"),
        (["generate", "--top-k", "3"], "momentum: --top-k is not for pictures: momentum generate --help"),
        (["train", "cpy"], "momentum: unknown experiment 'cpy'; did you mean 'copy'?"),
        (["train", "copy", "--model", "sofmax"], "momentum: unknown model 'sofmax'; did you mean 'softmax'?"),
        (["train", "copy", "--scale", "smal"], "momentum: unknown scale 'smal'; did you mean 'small'?"),
        (
            ["train", "copy", "--set", "model.bta=1"],
            "momentum: unknown setting 'model.bta'; did you mean 'model.beta'?",
        ),
        (["train", "copy", "--set", "model.beta=1.5", "--scale", "tiny"], "momentum: beta must be in [0, 1), not 1.5"),
        (
            ["train", "lra-listops", "--fidelity", "realeased"],
            "momentum: fidelity must be one of 'paper', 'released', not 'realeased'",
        ),
        (["train", "lra-text", "--data-dir", "nowhere"], "momentum: aclImdb is not in nowhere: put aclImdb_v1.tar.gz"),
        (["generate", "nowhere", "--prompt", "x"], "momentum: nowhere is not a run directory: it has no config.json"),
        (["evaluate", "nowhere"], "momentum: nowhere is not a run directory: it has no config.json"),
        (["evaluate", __file__], f"momentum: {__file__} is not a run directory: it is a file"),
        (
            ["train", "table", "--source", "a.csv", "b.csv"],
            "momentum: --source of table is one file or folder, not a.csv b.csv",
        ),
        (["train", "copy", "--model", "mamba"], "momentum: unknown model 'mamba' (known: softmax, reformer"),
        (["export", "nowhere", "out"], "momentum: nowhere is not a run directory: it has no config.json"),
        (["translate"], "momentum: momentum translate needs RUN (a run directory)\n"),
        (["export", "x"], "momentum: momentum export needs PATH (the folder to make)\n"),
        (["report"], "momentum: there is no folder runs; name one with runs in it"),
        (["report", "nowhere"], "momentum: there is no folder nowhere; name one with runs in it"),
        (["serve", "nowhere", "--port", "0"], "momentum: there is no folder nowhere; name one with runs in it"),
        (["serve", ".", "--port", "70000"], "momentum: --port must be from 0 to 65535, not 70000"),
        (
            ["serve", ".", "--port", "0"],
            "momentum: no trained run that draws, translates or writes in .; make one: momentum train digits",
        ),
        (
            ["train", "digits", "--scale", "medium"],
            "momentum: digits has no scale 'medium' (known: tiny, small, paper)",
        ),
        (["reproduce", "lra", "--scale", "medium"], "momentum: lra-pathfinder has no scale 'medium'"),
        (["reproduce", "figure"], "momentum: unknown study 'figure'"),
        (["reproduce", "tables", "--queue", "--jobs", "2"], "momentum: a queue runs one job at a time, not 2"),
        (["list", "--queue", "--seeds", "0"], "momentum: --seeds must be 1 or more, not 0"),
        (["reproduce", "copy", "--seeds", "0"], "momentum: --seeds and --jobs must be 1 or more"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    words: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*words) == 2
    error = capsys.readouterr().err
    assert error.startswith(message)
    assert error.count("\n") == 1
    assert not list(tmp_path.rglob("config.json"))


@pytest.mark.parametrize("words", [
    "train copy --scale tiny --runs PLACE", "train copy --scale tiny --out PLACE",
    "reproduce copy --scale tiny --runs PLACE", "reproduce copy --scale tiny --runs PLACE --jobs 2",
    "reproduce copy --scale tiny --runs PLACE --dry-run", "reproduce copy --scale tiny --runs PLACE --queue",
    "reproduce copy --scale tiny --report PLACE", "reproduce copy --scale tiny --queue --results PLACE",
    "list --queue --runs PLACE", "list --queue --results PLACE", "report . --out PLACE", "export . PLACE",
    "bench --quick --out PLACE/more", "bench --quick --plot PLACE/more.svg",
    "generate --gif PLACE/more.gif", "generate --singles PLACE", "generate --out PLACE/more.png",
])  # fmt: skip
def test_a_file_where_a_folder_belongs_is_refused_before_any_work(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("kept")
    for place in ("file", "file/below"):
        assert run(*words.replace("PLACE", place).split()) == 2
        said = capsys.readouterr()
        assert "file is a file, not a folder; name another place\n" in said.err
        assert said.err.startswith("momentum: ")
        assert said.err.count("\n") == 1
        assert said.out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert Path("file").read_text() == "kept"


def test_reproduce_runs_a_study_and_keeps_what_is_finished(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["reproduce", "digits", "--scale", "tiny", "--jobs", "2", "--runs", str(tmp_path / "runs")]
    words += ["--report", str(tmp_path / "report"), "--set", "train.steps=2"]
    assert run(*words) == 0
    first = capfd.readouterr().out
    assert first.strip().endswith(str(tmp_path / "report" / "index.html"))
    assert run(*words) == 0
    assert capfd.readouterr().out.count("finished already") == 5


def test_fidelity_is_a_setting_with_a_flag_of_its_own(tmp_path: Path) -> None:
    words = ["train", "lra-listops", "--model", "linear", "--scale", "tiny", "--runs", str(tmp_path)]
    assert run(*words, "--fidelity", "released") == 0
    assert run(*words, "--fidelity", "paper") == 0
    found = sorted(path.name for path in (tmp_path / "lra-listops" / "linear").iterdir())
    assert found == ["tiny-seed0", "tiny-seed0,fidelity=released"]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["train"],
        ["reproduce"],
        ["report"],
        ["evaluate"],
        ["generate"],
        ["predict"],
        ["serve"],
        ["list"],
        ["bench"],
        ["export"],
    ],
)
def test_help_has_an_example_and_does_not_wait_for_torch(words: list[str]) -> None:
    program = (
        "import sys\nfrom momentum_transformer.cli import main\n"
        f"try:\n    main({[*words, '--help']!r})\nexcept SystemExit:\n    assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Example" in done.stdout


def test_help_fits_into_eighty_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for words in ((), *((kind.__name__.lower(),) for kind in get_args(Command)), ("train", "text")):
        assert run(*words, "--help") == 0
        lines = capsys.readouterr().out.splitlines()
        assert all(len(line.rstrip()) <= 80 for line in lines), words
        assert " ".join(("usage: momentum", *words[:1], "[-h]")) in lines[0]
        assert "train" not in words or lines[0].endswith("NAME")


def test_who_reads_only_the_beginning_gets_no_traceback() -> None:
    words = [sys.executable, "-m", "momentum_transformer", "train", "--help"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_generate_writes_with_a_model_that_comes_with_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("generate", "--prompt", "ROMEO:", "--tokens", "20") == 0
    written = capsys.readouterr()
    assert written.out.startswith("ROMEO:")
    assert "20 tokens in " in written.err


def test_generate_draws_with_the_model_that_comes_with_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("generate", "--count", "2") == 0
    assert (tmp_path / "grid.png").stat().st_size > 100


def test_a_name_that_no_file_can_have_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for out in (tmp_path / ("n" * 300), Path(str(tmp_path) + "/a" * 2_500)):
        with pytest.raises(SystemExit) as ended:
            main(["train", "copy", "--scale", "tiny", "--out", str(out)])
        assert ended.value.code == 2
        said = capsys.readouterr().err
        assert said.startswith("momentum: ")
        assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "redirected", "code", "said"),
    [("--version", ">/dev/full", 2, "momentum: [Errno 28]"), ("--version", ">&-", 0, ""), ("list", ">&-", 0, "")],
)
def test_output_that_is_full_or_closed_is_no_traceback(words: str, redirected: str, code: int, said: str) -> None:
    command = f"{sys.executable} -m momentum_transformer {words} {redirected}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr[: len(said)]) == (code, said)
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") <= 1


def test_a_terminal_without_the_characters_gets_others() -> None:
    words = [sys.executable, "-m", "momentum_transformer", "list"]
    done = subprocess.run(words, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr

"""docs/extending.md as it is written, in a copy of the package: new files, lines in old ones, and the commands."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import momentum_transformer

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "extending.md"
PACKAGE = Path(momentum_transformer.__file__).parent
CHECKS = {
    "A new mixer": """
import torch
from momentum_transformer import Encoder
from momentum_transformer.layers.leaky import LeakyAttention
encoder = Encoder(2, 16, 2, attention=LeakyAttention()).eval()
x = torch.randn(2, 9, 16)
y, state = encoder(x[:, :8], return_state=True)
assert torch.allclose(encoder.step(x[:, 8], state)[0], encoder(x)[:, 8], atol=1e-5)
from momentum_transformer.experiments import EXPERIMENTS
for name, experiment in EXPERIMENTS.items():
    if "leaky" in experiment.models:
        experiment.config("leaky", "tiny")
""",
    "A new experiment": "",
    "A new backend": """
import torch
from momentum_transformer import backends, linear_attention, momentum_attention
q, k, v = torch.randn(3, 2, 2, 50, 8, dtype=torch.float64)
mask = torch.rand(2, 50) > 0.3
for options in ({}, {"key_mask": mask}):
    found, known = (linear_attention(q, k, v, backend=x, **options) for x in ("running-sums", "recurrent"))
    assert torch.allclose(found, known)
assert "running-sums" in [status.name for status in backends()]
try:
    momentum_attention(q, k, v, beta=0.5, backend="running-sums")
except ValueError as error:
    assert "it knows linear attention only" in str(error)
else:
    raise AssertionError("the backend served a member that it does not know")
momentum_attention(q, k, v, beta=0.5)
""",
}
# what stands on no page, but follows from it: every experiment takes the mixer, and tests that list names are green
MORE = {
    "A new mixer": """
momentum train table --model leaky --scale tiny --source table.csv
momentum train table --model leaky --scale tiny --source table.csv --set model.convolution=own --seed 1
momentum train lra-listops --model leaky --scale tiny
momentum list selective-copy
python -m pytest tests/test_docs.py -k architecture
""",
    "A new experiment": "python -m pytest tests/test_docs.py -k architecture",
    "A new backend": "python -m pytest tests/test_docs.py tests/ops/test_errors.py -k 'architecture or says_what'",
}
RUN = """
import shlex, sys
from momentum_transformer.cli import main
for line in sys.argv[1:]:
    try:
        main(shlex.split(line))
    except SystemExit as ended:
        assert not ended.code, line
"""
LINES = {"A new mixer": 1, "A new experiment": 2, "A new backend": 2}  # in a file that was there


def section(title: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Whole files and lines with the file they belong to, and the commands."""
    text = PAGE.read_text().split(f"## {title}\n")[1].split("\n## ")[0]
    found = re.findall(r"^```(python|text|sh)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    files = [block.removeprefix("# ").split("\n", 1) for language, block in found if language != "sh"]
    return [(path, body) for path, body in files], [block.strip() for language, block in found if language == "sh"]


def extend(source: str, lines: str) -> str:
    """A file with the lines of the page in it: imports with the imports, the others at the end of what they name."""
    for line in lines.splitlines():
        code, _, place = line.partition("  # ")
        if place == "with the imports":
            imports = list(re.finditer(r"^from .*?(?:\(.*?^\)|$)", source, flags=re.DOTALL | re.MULTILINE))
            end = imports[-1].end() if imports else len(source)
            source = f"{source[:end]}\n{code}{source[end:]}"
        else:
            start = re.search(rf"^{place.removeprefix('in ')}\b", source, flags=re.MULTILINE)
            assert start is not None, place
            opened = source.index("(", source.index("=", start.start()))
            source = f"{source[: opened + 1]}{code}{source[opened + 1 :]}"
    return source


@pytest.mark.parametrize("title", CHECKS)
def test_the_example_works_as_it_is_written(title: str, tmp_path: Path) -> None:
    copy = tmp_path / "src" / "momentum_transformer"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "shipped", "*.so"))
    for name in ("README.md", "pyproject.toml", "docs", "tests", "examples"):
        copied = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copied(ROOT / name, tmp_path / name)
    rows = "".join(f"{word * 8},{label}\n" for word, label in [("good", 1), ("bad", 0)] * 40)
    (tmp_path / "table.csv").write_text("text,label\n" + rows)
    files, commands = section(title)
    if any("momentum export" in command for command in commands):
        pytest.importorskip("transformers")
    assert files
    assert commands
    old, changed = [], 0
    for path, body in files:
        place = tmp_path / path
        if place.exists():
            old.append(path)
            changed += len(body.splitlines())
            place.write_text(extend(place.read_text(), body))
        else:
            place.write_text(body)
    assert len(old) == 1
    assert changed == LINES[title]
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "src"), "MOMENTUM_CHECK_SHAPES": "0"}
    lines = [line for text in (*commands, MORE[title]) for line in text.strip().splitlines()]
    ours = [line.removeprefix("momentum ") for line in lines if line.startswith("momentum ")]
    others = [shlex.split(line)[1:] for line in lines if line.startswith("python ")]
    assert len(ours) + len(others) == len(lines)
    for words in (["-c", CHECKS[title] + RUN, *ours], *others):
        run = subprocess.run([sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr + run.stdout

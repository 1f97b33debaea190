"""Hints that can be copied, and a distribution that has what it must."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import momentum_transformer
from momentum_transformer import install
from momentum_transformer.install import install_hint

ROOT = Path(__file__).parent.parent
NEEDED = (
    "momentum_transformer/backend/cpu/native/kernel.cpp",
    "momentum_transformer/data/digits.npz",
    "momentum_transformer/nn/__init__.py",
    "momentum_transformer/py.typed",
    "momentum_transformer/web/static/index.html",
)


def test_a_clone_is_told_to_install_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "__file__", str(ROOT / "src" / "momentum_transformer" / "install.py"))
    monkeypatch.chdir(tmp_path)
    assert install_hint("web") == f"pip install -e '{ROOT}[web]'"
    monkeypatch.chdir(ROOT)
    assert install_hint("web") == "pip install -e '.[web]'"


def test_an_installed_package_is_told_to_install_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "__file__", str(tmp_path / "site-packages" / "momentum_transformer" / "install.py"))
    assert install_hint("web") == "pip install 'momentum-transformer[web]'"


def test_every_hint_goes_through_one_function() -> None:
    for path in Path(momentum_transformer.__file__).parent.rglob("*.py"):
        said = path.name != "install.py" and "pip install '" in path.read_text()
        assert not said, f"{path} says pip install by itself"


@pytest.mark.slow
def test_a_wheel_and_the_sources_hold_what_they_must(tmp_path: Path) -> None:
    pytest.importorskip("setuptools", minversion="77")
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "Makefile"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copy(ROOT / "constraints.txt", tmp_path)
    for name in ("src", "examples"):
        shutil.copytree(
            ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info")
        )
    program = "from setuptools.build_meta import build_sdist, build_wheel; build_sdist('dist'); build_wheel('dist')"
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    (sources,) = (tmp_path / "dist").glob("*.tar.gz")
    packed = set(zipfile.ZipFile(wheel).namelist())
    with tarfile.open(sources) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    for name in NEEDED:
        assert name in packed
        assert f"src/{name}" in inside
    assert {"setup.py", "constraints.txt", "examples/gpt.py"} <= inside
    assert not [name for name in inside if name.endswith(".so")]
    if shutil.which("c++"):
        assert "momentum_transformer/backend/cpu/_native.so" in packed
    done = subprocess.run(
        [sys.executable, "-c", "from momentum_transformer.install import install_hint; print(install_hint('web'))"],
        env={"PYTHONPATH": str(wheel)},  # a wheel is a zip file, from which Python imports
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.stdout.strip() == "pip install 'momentum-transformer[web]'", done.stderr

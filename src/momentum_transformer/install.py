"""How this package came onto this machine, for hints that can be copied as they are."""

from pathlib import Path

NAME = "momentum-transformer"


def install_hint(extra: str) -> str:
    """The command that adds an extra: to a clone, or to the package by its name."""
    source = Path(__file__).resolve().parents[1]
    if source.name != "src" or not (source.parent / "pyproject.toml").is_file():
        return f"pip install '{NAME}[{extra}]'"
    clone = "." if source.parent == Path.cwd().resolve() else source.parent
    return f"pip install -e '{clone}[{extra}]'"

"""Where data sets are on this machine."""

import os
from collections.abc import Sequence
from pathlib import Path

from ..errors import UserError


class DataError(UserError):
    """Data that is missing, damaged or not what its name says; the message is for the user."""


def data_root(given: Path | None, remembered: str | None = None) -> Path:
    """The folder of all data sets: what was given, else $MOMENTUM_DATA, else where a run found its data before,
    else `data` where the command was started."""
    return given or Path(os.environ.get("MOMENTUM_DATA") or remembered or "data")


def candidates(root: Path, names: Sequence[str]) -> list[Path]:
    """Where the files of a data set may be: in a folder of its name, or in `root` itself if that is its own folder."""
    return [folder for folder in (*(root / name for name in names), root) if folder.is_dir()]

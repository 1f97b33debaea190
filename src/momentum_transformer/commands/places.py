"""Refuse a place where nothing can be written, before a command takes its time."""

from pathlib import Path

from ..experiments.configuration import ConfigurationError


def need_folder(option: str, path: Path | None) -> None:
    """A folder, or a name where one can be made."""
    _need_folders(option, path, () if path is None else (path, *path.parents))


def need_file(option: str, path: Path | None) -> None:
    """The name of a file, whose folder is there or can be made."""
    if path is not None and path.is_dir():
        raise ConfigurationError(f"{path} is a folder; name a file")
    _need_folders(option, path, () if path is None else tuple(path.parents))


def _need_folders(option: str, path: Path | None, places: tuple[Path, ...]) -> None:
    there = next((place for place in places if place.exists()), None)
    if there is not None and not there.is_dir():
        raise ConfigurationError(f"{option} {path}: {there} is a file, not a folder; name another place")

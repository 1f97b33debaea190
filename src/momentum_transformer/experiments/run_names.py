"""The name of a run's folder: what tells it from the others of its experiment and model."""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

OWN_DATA = tuple(f"data.{name}=" for name in ("source", "target", "text_column", "label_column"))
LONGEST_STEM = 40  # characters of a file's name in that of a run's folder
LONGEST_NAME = 200  # of a run's folder; file systems allow 255 bytes


def run_name(first: str, settings: Sequence[str]) -> str:
    """Scale and seed, data of one's own by the name of its file, then the settings; digests of what is long."""
    changed = _with_data_named(sorted(settings))
    name = ",".join((first, *changed)).replace("/", "_")
    if len(name.encode()) > LONGEST_NAME:
        name = ",".join((first, *map(_shortened, changed)))
    return name


def _with_data_named(settings: list[str]) -> list[str]:
    """The settings with one word for those that say which data: the name of its file, and a digest of them."""
    data = [setting for setting in settings if setting.startswith(OWN_DATA)]
    sources = [setting.partition("=")[2] for setting in data if setting.startswith(OWN_DATA[0])]
    if not sources:
        return settings
    name = Path(sources[0].partition(",")[0].strip('"')).name.partition(".")[0][:LONGEST_STEM] or "data"
    digest = sha256("\n".join(data).encode()).hexdigest()[:6]
    return [f"{name}-{digest}", *(setting for setting in settings if setting not in data)]


def _shortened(setting: str) -> str:
    """A setting with a digest in place of a long value."""
    name, equals, value = setting.partition("=")
    if not equals:
        return setting
    digest = sha256(value.encode()).hexdigest()[:16]
    return f"{name}={value if len(value) <= len(digest) else digest}".replace("/", "_")

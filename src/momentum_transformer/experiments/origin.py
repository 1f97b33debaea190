"""What a run notes of its data: where it found it, and whether it is still the same."""

import json
from typing import Any

from ..training.run_directory import RunDirectory, RunError
from .configuration import shown

PLACES = ("directory", "files", "source", "teacher", "note")  # data may move


def stored_provenance(run: RunDirectory) -> dict[str, Any] | None:
    """Where a run came from; None where that is not there or cannot be read: no run needs it to go on."""
    try:
        return run.read("provenance.json")
    except RunError:
        return None


def remembered(run: RunDirectory) -> str | None:
    """Where the run found its data."""
    directory: str | None = ((stored_provenance(run) or {}).get("data") or {}).get("directory")
    return directory


def has_digest(run: RunDirectory) -> bool:
    """Whether the run notes a checksum of its data."""
    return "sha256" in (stored_provenance(run) or {}).get("data", {})


def refuse_other_data(run: RunDirectory, origin: dict[str, Any]) -> None:
    """Refuse data that differs from that of the run's beginning in anything but its place."""
    then = (stored_provenance(run) or {}).get("data", {})
    now = json.loads(json.dumps(origin))
    for name in sorted(then.keys() & now.keys() - {*PLACES}):
        if then[name] != now[name]:
            raise RunError(
                f"the data of {run.path} has changed since the run began: its {name} is {shown(now[name])} and was "
                f"{shown(then[name])}; bring back the data as it was, or begin a new run in another place"
            )

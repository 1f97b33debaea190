"""What every benchmark writes down: its numbers, and the machine they are of."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..training.provenance import provenance


def machine() -> dict[str, Any]:
    found = provenance()
    kept = ("cpu", "cores", "threads", "python", "allocator", "started", "commit", "dirty")
    return {name: found[name] for name in kept} | {"torch": found["versions"]["torch"]}


def commit_of(measured: Mapping[str, Any]) -> str:
    """The commit that was measured, in words."""
    return f"{(measured['commit'] or 'unknown')[:12]}{' with changes' if measured['dirty'] else ''}"


def record(program: str, what: str, meaning: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The rows of a program of this package, with its command, the machine, and what they are and mean."""
    command = " ".join([f"python -m momentum_transformer.bench.{program}", *sys.argv[1:]])
    return {"command": command, "machine": machine(), "what": what, "meaning": meaning, "rows": rows}


def save(result: dict[str, Any], out: Path | None) -> None:
    """Write the record as JSON, where a place was named."""
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")

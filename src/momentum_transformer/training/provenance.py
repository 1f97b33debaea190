"""Where numbers come from: code, versions, machine, command line."""

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .allocator import allocator


def _command() -> str:
    """The command line; `python -m momentum_transformer` is `momentum`."""
    program = Path(sys.argv[0])
    return " ".join(["momentum" if program.name == "__main__.py" else program.name, *sys.argv[1:]])


def provenance() -> dict[str, Any]:
    """Where a run's numbers come from."""
    import torch

    return {
        "commit": _git("rev-parse", "HEAD"),
        "dirty": None if (status := _git("status", "--porcelain")) is None else bool(status),
        "command": _command(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {name: _version(name) for name in ("momentum-transformer", "torch", "numpy", "safetensors")},
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load": machine_load(),
        "threads": torch.get_num_threads(),
        "allocator": allocator(),
        "processes": int(os.environ.get("WORLD_SIZE", "1")),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def machine_load() -> float | None:
    """How many processes wanted a core in the last minute, this one included; None where the system does not tell."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git(*arguments: str) -> str | None:
    """What git says of the checkout this code runs from; None where there is none."""
    for words in (("ls-files", "--error-unmatch", Path(__file__).name), arguments):  # is this file its own?
        try:
            run = subprocess.run(
                ["git", "--no-optional-locks", *words],
                cwd=Path(__file__).parent,
                capture_output=True,
                text=True,
                timeout=10,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        if run.returncode:
            return None
    return run.stdout.strip()


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )

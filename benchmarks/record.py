"""What every benchmark writes down: its numbers, and the machine they are of."""

import json
import os
import platform
from pathlib import Path
from typing import Any

import torch


def machine() -> dict[str, Any]:
    cpu = next((line.split(":")[1].strip() for line in _cpuinfo() if "model name" in line), platform.processor())
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def save(result: dict[str, Any], out: Path | None) -> None:
    """As JSON, where a place was named."""
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(result, indent=2) + "\n")

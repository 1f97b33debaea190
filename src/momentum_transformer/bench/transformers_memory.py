"""Peak memory of a training step of one of Transformers' mixers, measured in a process of its own.

Kind of mixer, theirs or ours, tokens:

    python -m momentum_transformer.bench.transformers_memory "gated delta" ours 2048
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from .measured_shapes import BenchError
from .memory import _status
from .transformers_models import SUBJECTS, WHO, choose, mixers_of, training_step

PEAK = Path("/proc/self/clear_refs")  # where Linux forgets the peak so far


def measure(kind: str, n: int) -> dict[str, Any]:
    """Peak bytes beyond those before the step, weights not among them, for both."""
    row: dict[str, Any] = {"kind": kind, "n": n, "dtype": "float32"}
    if not PEAK.exists():
        return row | {"skipped": "peak memory is measured on Linux only"}
    for who in WHO:
        program = [sys.executable, "-m", "momentum_transformer.bench.transformers_memory", kind, who, str(n)]
        done = subprocess.run(program, capture_output=True, text=True)
        if done.returncode:
            return row | {"skipped": (done.stderr.strip().splitlines() or [f"code {done.returncode}"])[-1]}
        row[who] = json.loads(done.stdout.splitlines()[-1])
    return row


def _peak(kind: str, who: str, n: int) -> int:
    torch.set_num_threads(1)
    subject = next(one for one in SUBJECTS if one.kind == kind)
    mixer = mixers_of(subject.model(layers=1, width=1024, vocabulary=8, dtype=torch.float32))[0]
    choose(mixer, who)
    training_step(mixer, torch.randn(1, 64, 1024))  # whatever is loaded at first use is not the call's own
    PEAK.write_text("5")
    before = _status("VmRSS")
    training_step(mixer, torch.randn(1, n, 1024))
    return _status("VmHWM") - before


if __name__ == "__main__":
    if len(sys.argv) != 4:
        raise BenchError(__doc__)
    sys.stdout.write(f"{_peak(sys.argv[1], sys.argv[2], int(sys.argv[3]))}\n")

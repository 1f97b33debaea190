"""Metrics to `metrics.jsonl`, and to TensorBoard where it is installed."""

from importlib.util import find_spec
from typing import Any

from .run_directory import RunDirectory


class Recorder:
    def __init__(self, run: RunDirectory, *, leads: bool, resumed_at: int) -> None:
        self.run = run if leads else None
        self.board: Any = None
        if leads and find_spec("tensorboard"):
            from torch.utils.tensorboard import SummaryWriter

            self.board = SummaryWriter(str(run.path / "tensorboard"), purge_step=resumed_at + 1)

    def write(self, kind: str, step: int, values: dict[str, Any]) -> None:
        if self.run is None:
            return
        self.run.append_metrics({"kind": kind, "step": step, **values})
        if self.board is not None:
            for name, value in values.items():
                if value is not None:
                    self.board.add_scalar(f"{kind}/{name}", value, step)

    def sample(self, step: int, text: str) -> None:
        """What the model writes at this step, as a line of samples.jsonl."""
        if self.run is not None:
            self.run.append("samples.jsonl", {"step": step, "text": text})

    def close(self) -> None:
        if self.board is not None:
            self.board.close()

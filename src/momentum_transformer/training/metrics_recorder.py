"""Metrics to `metrics.jsonl`, and to TensorBoard where it is installed."""

from importlib.util import find_spec
from types import TracebackType
from typing import Any

from .run_directory import SAMPLES, RunDirectory, RunError


class Recorder:
    def __init__(self, run: RunDirectory, *, leads: bool, resumed_at: int) -> None:
        self.run = run if leads else None
        self.board: Any = None
        if leads and find_spec("tensorboard"):
            from torch.utils.tensorboard import SummaryWriter

            try:
                self.board = SummaryWriter(str(run.path / "tensorboard"), purge_step=resumed_at + 1)
            except (OSError, UnicodeError) as error:  # TensorBoard accepts names in UTF-8 only
                raise RunError(f"{run.path}/tensorboard cannot be written: {error}") from None

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.board is None:
            return
        try:
            self.board.close()
        except OSError as full:
            if error is None:
                raise RunError(f"{self.board.log_dir} cannot be written: {full}") from None

    def write(self, kind: str, step: int, values: dict[str, Any]) -> None:
        if self.run is None:
            return
        self.run.append_metrics({"kind": kind, "step": step, **values})
        if self.board is not None:
            try:
                for name, value in values.items():
                    if value is not None:
                        self.board.add_scalar(f"{kind}/{name}", value, step)
            except OSError as error:
                raise RunError(f"{self.board.log_dir} cannot be written: {error}") from None

    def sample(self, step: int, text: str) -> None:
        """What the model writes at this step, as a line of samples.jsonl."""
        if self.run is not None:
            self.run.append(SAMPLES, {"step": step, "text": text})

    def sync(self) -> None:
        """Sync what was written to the disk."""
        if self.run is not None:
            self.run.sync_logs()

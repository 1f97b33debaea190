"""The part of a configuration that the loop reads."""

from dataclasses import dataclass
from typing import Literal

MOST_ROWS = 2**20  # of a batch; of tokens, where it is counted in these


@dataclass(frozen=True)
class TrainConfig:
    steps: int = 1000
    batch_size: int = 64
    accumulate: int = 1
    optimizer: Literal["radam", "adam", "adamw"] = "radam"
    learning_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    weight_decay: float = 0.01
    decayed: Literal["all", "matrices"] = "all"  # matrices: weight decay spares norms, biases and other vectors
    clip: Literal["tensor", "global", "none"] = "tensor"
    clip_norm: float = 1.0
    schedule: Literal["constant", "drop", "one-cycle", "linear", "cosine"] = "constant"
    drop_at: float = 0.3
    drop_factor: float = 0.1
    final_rate: float = 0.0  # linear, cosine: where the rate ends
    warmup: float = 0.1  # one-cycle, cosine: the share of steps in which the rate rises
    cycle_beta1: bool = False  # one-cycle: β₁ falls from 0.95 to 0.85 while the rate rises, and comes back
    select: Literal["loss", "accuracy"] = "loss"  # which metric of validation decides what the best checkpoint is
    precision: Literal["float32", "bfloat16", "float16", "mixed"] = "float32"  # mixed: float16 on a GPU only
    compile: bool = False
    parallel: Literal["ddp", "fsdp"] = "ddp"  # of several processes: each has all weights, or a share of them
    context: int = 1  # processes that share each sequence
    log_every: int = 10
    evaluate_every: int = 100
    save_every: int = 500

    def __post_init__(self) -> None:
        whole = ("steps", "batch_size", "accumulate", "log_every", "evaluate_every", "save_every", "context")
        for name in whole:
            if getattr(self, name) < 1:
                raise ValueError(f"train.{name} must be 1 or more, not {getattr(self, name)}")
        if self.batch_size > MOST_ROWS:
            raise ValueError(f"train.batch_size must be at most {MOST_ROWS:,}, not {self.batch_size:,}")
        for name in ("learning_rate", "clip_norm", "epsilon"):
            if not getattr(self, name) > 0:
                raise ValueError(f"train.{name} must be positive, not {getattr(self, name)}")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"train.betas must be in [0, 1), not {list(self.betas)}")
        if not self.weight_decay >= 0:
            raise ValueError(f"train.weight_decay must be 0 or more, not {self.weight_decay}")
        if self.parallel == "fsdp" and self.compile:
            raise ValueError("train.parallel=fsdp does not go with train.compile")
        if self.parallel == "fsdp" and self.precision == "float16":
            raise ValueError("train.parallel=fsdp knows no float16; use train.precision=bfloat16")
        if self.context > 1 and self.compile:
            raise ValueError("train.context above 1 does not go with train.compile")
        if self.schedule in ("one-cycle", "cosine") and not 0 <= self.warmup < 1:
            raise ValueError(f"train.warmup is a share of the steps, in [0, 1), not {self.warmup}")

"""The gap between softmax and linear attention, and who closes how much of it, on tasks that decide in minutes.

Every model has the depth and width of the others and, where its layers have more parts, so much less feed-forward
that parameter counts are equal within one percent. Every model is tried at three learning rates; the best one on
validation data is run with further seeds.
"""

from dataclasses import dataclass
from typing import Any

from .experiment import Study, Variant

RATES = (1.0, 1 / 3, 3.0)
FITTED = "model.budget=softmax"
CONVOLVED = "model.convolution=on"
UNDECAYED = "model.decay=false"
NAMES = (
    *("softmax", "linear", "momentum", "adaptive-momentum", "gated-momentum", "retention"),
    *("delta", "gated-delta", "momentum-delta", "hybrid"),
)
BARE = ("softmax", "linear", "momentum", "adaptive-momentum")  # whose layers have no parts of their own
GAP_MODELS = (
    *(Variant(name, () if name in BARE else (FITTED,), rates=RATES) for name in NAMES),
    # so that the effect of the convolution shows
    *(Variant(name, (CONVOLVED, FITTED), rates=RATES) for name in ("softmax", "linear", "momentum")),
    # a decay helps on text and keeps some seeds from learning recall
    Variant("momentum-delta", (UNDECAYED, FITTED), rates=RATES),
)


@dataclass(frozen=True)
class GapTask:
    """One task of the gap: settings of an experiment, and the score by which models are compared there."""

    label: str
    experiment: str
    settings: tuple[str, ...]
    metric: str  # as in metrics.jsonl
    unit: str
    chance: float  # what knowing nothing of the sequence scores
    higher: bool = False  # is better
    more: tuple[Variant, ...] = ()  # models that are made for it
    steps: bool = False  # whether steps to 90 % accuracy are compared, too

    def variants(self) -> tuple[Variant, ...]:
        """Every model, with the task's settings."""
        return tuple(Variant(v.model, (*self.settings, *v.settings), rates=v.rates) for v in (*GAP_MODELS, *self.more))


# The first copy task has the length of scale small, and no setting: its runs are those of the copy study.
_COPY: dict[str, Any] = {
    "experiment": "copy",
    "metric": "loss",
    "unit": "nats",
    "chance": 2.0,  # ten symbols, an easy separator
    "steps": True,
}
_PICTURES: dict[str, Any] = {"settings": (), "metric": "bits_per_dim", "unit": "bits/dim", "chance": 8.0}
_SYMBOLS: dict[str, Any] = {"settings": (), "metric": "accuracy", "unit": "accuracy", "higher": True}
# a delta rule that may reflect can count modulo two
_TRACKING: dict[str, Any] = {
    "more": tuple(Variant(n, ("model.negative=true", FITTED), rates=RATES) for n in ("delta", "gated-delta"))
}
GAP_TASKS = (
    GapTask("recall", "recall", chance=1 / 8, **_SYMBOLS),  # one of the values in the row
    GapTask("copy 32", settings=(), **_COPY),
    GapTask("parity", "parity", chance=1 / 2, **_SYMBOLS, **_TRACKING),
    GapTask("selective-copy", "selective-copy", chance=1 / 16, **_SYMBOLS),
    GapTask("recall-rewrite", "recall-rewrite", chance=1 / 12, **_SYMBOLS),
    GapTask("s3", "s3", chance=1 / 6, **_SYMBOLS, **_TRACKING),
    GapTask("regression", "regression", (), "loss", "squared error", chance=1.0),
    GapTask("text", "text", (), "bits_per_byte", "bits/byte", chance=8.0),
    GapTask("copy 64", settings=("data.length=64",), **_COPY),
    GapTask("mnist", "mnist", **_PICTURES),
    GapTask("cifar10", "cifar10", **_PICTURES),
    GapTask("copy 128", settings=("data.length=128",), **_COPY),
)

# The member with every part, and what is taken away from it, one at a time.
WHOLE = Variant("momentum-delta", (FITTED,))
WITHOUT = {
    "nothing": WHOLE,
    "momentum": Variant("gated-delta", (FITTED,)),
    "decay": Variant("momentum-delta", (UNDECAYED, FITTED)),
    "gate": Variant("momentum-delta", ("model.tail=norm", FITTED)),
    "norm": Variant("momentum-delta", ("model.tail=gate", FITTED)),
    "convolution": Variant("momentum-delta", ("model.convolution=off", FITTED)),
}
APART = tuple(task for task in GAP_TASKS if task.label in ("recall", "selective-copy", "copy 32", "text"))

# Recall where a state can be too small: more pairs than the smallest heads can hold apart.
CROWDED = ("data.pairs=16", "data.length=128", "data.vocabulary=256")
HEADS = (16, 4, 1)  # of 64 features: a state holds 64 × 64 / heads numbers a layer
SIZED_MODELS = ("softmax", "linear", "momentum", "delta", "gated-delta", "momentum-delta")
SIZED = tuple(
    Variant(v.model, (*CROWDED, f"model.heads={heads}", *v.settings))
    for heads in HEADS
    for v in GAP_MODELS
    if v.model in SIZED_MODELS and not {CONVOLVED, UNDECAYED} & {*v.settings}
)


def _parts() -> tuple[Study, ...]:
    tasks = tuple(Study(task.label, task.label, task.experiment, task.variants()) for task in GAP_TASKS)
    apart = tuple(
        Study(
            f"{task.label} apart",
            "The best member taken apart",
            task.experiment,
            tuple(Variant(v.model, (*task.settings, *v.settings)) for v in WITHOUT.values()),
        )
        for task in APART
    )
    return *tasks, *apart, Study("state", "Recall against the size of the state", "recall", SIZED)


_FIRST, *_OTHERS = _parts()
GAP = Study(
    "gap",
    "Who closes the gap between softmax and linear attention",
    _FIRST.experiment,
    _FIRST.variants,
    then=tuple(_OTHERS),
    section="gap",
)

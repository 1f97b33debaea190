"""What the five tasks of Long Range Arena ask for at each scale and fidelity, and the paper's Tables 1 and 4."""

from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from ...training.config import TrainConfig
from ..configuration import nearest
from ..experiment import check_scale
from ..mixer_settings import ReformerSettings
from ..model_config import ModelConfig, named
from ..named_models import FAMILY, PAPER_MODELS

BASELINE: Final = "bag-of-tokens"
PAPER_LRA_MODELS = (*PAPER_MODELS, BASELINE)
LRA_MODELS = (*PAPER_LRA_MODELS, *FAMILY)

# Table 4: test accuracy in %, in the order of TASKS
PAPER_TABLE = {
    "softmax": (37.10, 64.17, 80.71, 39.06, 72.48),
    "reformer": (19.05, 64.88, 78.64, 43.29, 69.36),
    "performer": (18.80, 63.81, 78.62, 37.07, 69.87),
    "linformer": (37.25, 55.91, 79.37, 37.84, 67.60),
    "linear": (18.30, 64.22, 81.37, 38.29, 71.17),
    "momentum": (19.56, 64.35, 81.95, 39.40, 73.12),
    "adaptive-momentum": (20.16, 64.45, 82.07, 39.53, 74.00),
}


@dataclass(frozen=True)
class TaskFacts:
    """What belongs to a task at every scale."""

    title: str
    classes: int
    vocabulary: int
    coefficients: tuple[float, float, float]  # Table 1: β, γ, and γ of the connection
    official: tuple[int, int, int]  # examples to train, validate and test on
    pair: bool = False


TASKS = {
    "lra-listops": TaskFacts("ListOps", 10, 32, (0.1, 0.6, 0.4), (96_000, 2_000, 2_000)),
    "lra-text": TaskFacts("Text", 2, 512, (0.6, 2.0, 0.001), (25_000, 25_000, 25_000)),
    "lra-retrieval": TaskFacts("Retrieval", 2, 512, (0.6, 1.0, 0.5), (147_086, 18_090, 17_437), pair=True),
    "lra-image": TaskFacts("Image", 10, 512, (0.9, 0.9, 0.001), (45_000, 5_000, 10_000)),
    "lra-pathfinder": TaskFacts("Pathfinder", 2, 512, (0.3, 0.1, 0.8), (160_000, 20_000, 20_000)),
}

# Deviation: Table 1 has no β of the connection for these tasks; this is its value for both picture tasks.
CONNECTION_BETA = 0.1


@dataclass(frozen=True)
class LraData:
    length: int  # tokens a sequence has at most
    shortest: int = 0  # ListOps: expressions have more tokens than this
    train: int = 0  # examples at most; 0: all there are
    validation: int = 0
    test: int = 0
    examples: int = 200_000  # Pathfinder: pictures, of which a tenth each to validate and to test on
    difficulty: Literal["easy", "medium", "hard"] = "hard"
    generated: bool = False  # Pathfinder: draw pictures even where there are files
    buckets: int = 4  # a batch is computed in so many parts of like lengths, which saves padding and changes no result

    def __post_init__(self) -> None:
        for name in ("length", "examples", "buckets"):
            if getattr(self, name) < 1:
                raise ValueError(f"data.{name} must be 1 or more, not {getattr(self, name)}")
        for name in ("train", "validation", "test", "shortest"):
            if getattr(self, name) < 0:
                raise ValueError(f"data.{name} must not be negative, not {getattr(self, name)}")

    @property
    def positions(self) -> int:
        """The padded length, and that of the table of positions: the next power of two."""
        return 1 << (self.length - 1).bit_length()


@dataclass(frozen=True)
class Protocol:
    padded: bool = False  # every sequence is padded to the same length, and means are over all positions
    mask_zeros: bool = False  # token 0 is taken for padding, also where it is a black pixel
    validate_on_test: bool = False  # Text: the best checkpoint is chosen on the test set


@dataclass(frozen=True)
class LraConfig:
    """`fidelity="released"` turns every switch to what the authors' released code does."""

    model: ModelConfig
    data: LraData
    train: TrainConfig
    protocol: Protocol = Protocol()
    fidelity: Literal["paper", "released"] = "paper"
    classifier: Literal["encoder", "bag-of-tokens"] = "encoder"

    def __post_init__(self) -> None:
        if self.fidelity == "paper":
            return
        model = self.model.having(
            weighting="terminal", denominator=False, scale_by_length=True, rule="released", delta=1e-4
        )
        object.__setattr__(self, "model", model)
        object.__setattr__(self, "protocol", Protocol(padded=True, mask_zeros=True, validate_on_test=True))
        object.__setattr__(self, "train", replace(self.train, cycle_beta1=True))


SIZES: dict[str, Any] = {"depth": 2, "width": 64, "heads": 2, "feedforward": 128}
SIZES |= {"norm": "pre", "activation": "gelu", "rounds": 2, "chunk_size": 64}


def lra_config(task: str, model: str, scale: str) -> LraConfig:
    """The configuration of one task, model and scale."""
    check_scale(task, scale, lacks=("medium",) if task == "lra-pathfinder" else ())
    if model not in LRA_MODELS:
        raise nearest("model", model, LRA_MODELS)
    beta, gamma, connection_gamma = TASKS[task].coefficients
    settings = {"beta": beta, "gamma": gamma}
    settings |= {"connection_beta": CONNECTION_BETA, "connection_gamma": connection_gamma}
    made = named("momentum" if model == BASELINE else model, SIZES | settings)
    config = {"paper": _paper, "medium": _medium, "small": _small, "tiny": _tiny}[scale](task, made)
    if model == BASELINE:  # linear in its features: a rate of its own
        train = replace(config.train, learning_rate=1e-2)
        return replace(config, classifier=BASELINE, train=train)
    if isinstance(config.model.mixer, ReformerSettings):
        buckets = max(2, 2 * config.data.positions // config.model.mixer.chunk_size)
        return replace(config, model=config.model.having(buckets=buckets))
    return config


# scale paper: length, batch, steps, share of warm-up, evaluated every
PAPER = {
    "lra-listops": (LraData(2000, shortest=500), 32, 5_000, 1_000 / 5_000, 50),
    "lra-text": (LraData(4000), 32, 20_000, 8_000 / 20_000, 500),
    "lra-retrieval": (LraData(4000), 32, 30_000, 800 / 30_000, 300),
    "lra-image": (LraData(1024, buckets=1), 256, 35_000, 175 / 35_000, 175),
    "lra-pathfinder": (LraData(1024, buckets=1), 256, 62_400, 312 / 62_400, 312),
}


def _paper(task: str, model: ModelConfig) -> LraConfig:
    data, batch_size, steps, warmup, every = PAPER[task]
    train = TrainConfig(
        steps=steps,
        batch_size=batch_size,
        optimizer="adamw",
        learning_rate=1e-4,
        epsilon=1e-6,
        weight_decay=0.0,
        clip="none",
        schedule="one-cycle",
        warmup=warmup,
        select="accuracy",
        precision="mixed",
        evaluate_every=every,
        save_every=every,
    )
    return LraConfig(model, data, train)


SMALL_RATE = 1e-3
# scale small: shorter sequences and fewer examples, for minutes on two CPU cores
SMALL = {
    "lra-listops": (LraData(256, shortest=64, train=20_000, validation=1_000, test=2_000), 32, 1_000),
    "lra-text": (LraData(512, validation=1_000, test=4_000), 16, 400),
    "lra-retrieval": (LraData(512, validation=250, test=1_000), 16, 200),
    "lra-image": (LraData(1024, buckets=1, validation=250, test=1_000), 16, 200),
    "lra-pathfinder": (
        LraData(1024, buckets=1, examples=20_000, validation=250, test=1_000, difficulty="easy", generated=True),
        16,
        200,
    ),
}


def _small(task: str, model: ModelConfig) -> LraConfig:
    data, batch_size, steps = SMALL[task]
    config = _paper(task, model.having(dropout=0.0, attention_dropout=0.0))
    train = replace(
        config.train,
        steps=steps,
        batch_size=batch_size,
        learning_rate=SMALL_RATE,
        warmup=0.1,
        evaluate_every=max(40, steps // 10),
        save_every=steps // 5,
    )
    return replace(config, data=data, train=train)


# scale medium: longer sequences and all examples, for an hour on two CPU cores
MEDIUM = {
    "lra-text": (LraData(1024), 32, 4_000),
    "lra-retrieval": (LraData(1024), 16, 3_000),
    "lra-image": (LraData(1024, buckets=1, validation=1_000), 32, 4_000),
}


def _medium(task: str, model: ModelConfig) -> LraConfig:
    """ListOps is the paper's protocol itself."""
    if task == "lra-listops":
        return _paper(task, model)
    data, batch_size, steps = MEDIUM[task]
    config = _small(task, model)
    # attention that is dropped has no fast form, and would make softmax alone twice as slow
    config = replace(config, data=data, model=replace(config.model, dropout=model.dropout))
    train = replace(config.train, steps=steps, batch_size=batch_size, evaluate_every=200, save_every=100)
    return replace(config, train=train)


TINY = {
    "lra-listops": LraData(48, shortest=8, train=200, validation=32, test=32),
    "lra-text": LraData(64, train=200, validation=32, test=32),
    "lra-retrieval": LraData(64, train=200, validation=32, test=32),
    "lra-image": LraData(1024, buckets=1, train=200, validation=8, test=8),
    "lra-pathfinder": LraData(1024, buckets=1, examples=80, difficulty="easy", generated=True),
}


def _tiny(task: str, model: ModelConfig) -> LraConfig:
    model = model.having(width=16, feedforward=32, features=16, chunk_size=16)
    config = _paper(task, model.having(dropout=0.0, attention_dropout=0.0))
    train = replace(
        config.train, steps=6, batch_size=4, learning_rate=1e-3, evaluate_every=3, save_every=3, log_every=3
    )
    return replace(config, data=TINY[task], train=train)

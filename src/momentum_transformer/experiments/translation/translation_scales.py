"""What the translation experiments ask for at each scale, and the paper's Table 5."""

from dataclasses import dataclass, replace
from typing import Final, Literal

from ...training.config import TrainConfig
from ..experiment import check_scale
from ..model_config import ModelConfig, named
from ..named_models import MODELS

TEACHER: Final = "autoregressive"
STUDENTS = tuple(model for model in MODELS if model != "reformer")
TRANSLATION_MODELS = (TEACHER, *STUDENTS)  # of Table 5
GATED_STUDENTS = ("gated-delta", "momentum-delta")  # their positional and cross attention are linear

# Table 5: BLEU and tokens per second
PAPER_TABLE = {
    "softmax": (24.34, 5104.0),
    "linear": (21.37, 1382.0),
    "momentum": (22.11, 1398.0),
    "momentum-connection": (22.14, 1403.0),
    "adaptive-momentum": (22.20, 1410.0),
}

# Table 1: β, γ, and β, γ of the connection
COEFFICIENTS = {"beta": 0.6, "gamma": 0.6, "connection_beta": 0.3, "connection_gamma": 0.9}


@dataclass(frozen=True)
class TranslationData:
    pieces: int = 40_004  # of the joint vocabulary, with those for unknown, padding, start and end
    longest: int = 100  # pairs with more pieces on either side are not trained on
    teacher: str = ""  # train on the translations of this run, or of this model's run beside ours
    source: str = ""  # own files: what to translate from, and to
    target: str = ""
    validation_source: str = ""
    validation_target: str = ""
    test_source: str = ""
    test_target: str = ""
    source_language: str = "en"
    target_language: str = "de"

    def __post_init__(self) -> None:
        for name in ("pieces", "longest"):
            if getattr(self, name) < 1:
                raise ValueError(f"data.{name} must be 1 or more, not {getattr(self, name)}")
        for part in ("", "validation_", "test_"):
            if bool(getattr(self, f"{part}source")) != bool(getattr(self, f"{part}target")):
                raise ValueError(
                    f"data.{part}source and data.{part}target (--source and --target) go together: line n of one "
                    "is translated by line n of the other"
                )


@dataclass(frozen=True)
class Refinement:
    training: int = 4  # passes of the decoders whose losses are added up
    decoding: int = 8  # refinements of the first draft
    denoise: float = 0.5  # how often a pass is given a spoilt reference instead of the pass before

    def __post_init__(self) -> None:
        if self.training < 1 or self.decoding < 0 or not 0 <= self.denoise <= 1:
            raise ValueError(
                "refine.training must be 1 or more, refine.decoding 0 or more and refine.denoise in [0, 1], not "
                f"{self.training}, {self.decoding} and {self.denoise}"
            )


@dataclass(frozen=True)
class TranslationConfig:
    """`train.batch_size` counts tokens, padding included, as the paper does."""

    model: ModelConfig
    data: TranslationData
    train: TrainConfig
    refine: Refinement = Refinement()
    decoder: Literal["non-autoregressive", "autoregressive"] = "non-autoregressive"


def translation_config(corpus: str, model: str, scale: str) -> TranslationConfig:
    """The configuration of one corpus, model and scale."""
    check_scale(corpus, scale)
    coefficients = named("softmax" if model == TEACHER else model, COEFFICIENTS)
    config = {"paper": _paper, "medium": _medium, "small": _small, "tiny": _tiny}[scale](corpus, coefficients)
    if model != TEACHER:
        return config
    train = config.train
    if scale == "small":  # one pass and not three: it can afford more tokens and steps
        train = replace(train, batch_size=1024, steps=1_200)
    if scale == "medium":
        train = replace(train, batch_size=2048)
    return replace(config, decoder="autoregressive", train=train)


def _paper(corpus: str, coefficients: ModelConfig) -> TranslationConfig:
    model = replace(coefficients, depth=5, width=278, heads=2, feedforward=507)
    train = TrainConfig(
        steps=250_000,
        batch_size=4096,
        optimizer="adam",
        learning_rate=3e-4,
        betas=(0.9, 0.98),
        epsilon=1e-9,
        weight_decay=0.0,
        clip="none",
        schedule="linear",
        final_rate=1e-5,
        select="accuracy",
        log_every=100,
        evaluate_every=1000,
        save_every=1000,
    )
    # Multi30k has fewer words than the paper's corpus
    return TranslationConfig(model, TranslationData(pieces=8_000 if corpus == "multi30k" else 40_004), train)


def _medium(corpus: str, coefficients: ModelConfig) -> TranslationConfig:
    """What fits into an hour on two CPU cores."""
    small = _small(corpus, coefficients)
    model = small.model.having(depth=3, width=160, heads=2, feedforward=320, dropout=0.1, attention_dropout=0.1)
    train = replace(small.train, steps=5_000, batch_size=1024, learning_rate=1e-3, evaluate_every=250, save_every=200)
    return replace(
        small,
        model=model,
        data=replace(small.data, pieces=4_000),
        train=train,
        refine=Refinement(training=3, decoding=6),
    )


def _small(corpus: str, coefficients: ModelConfig) -> TranslationConfig:
    """What fits into minutes on two CPU cores."""
    paper = _paper(corpus, coefficients)
    model = coefficients.having(depth=2, width=128, heads=2, feedforward=256, dropout=0.0, attention_dropout=0.0)
    train = replace(
        paper.train,
        steps=800,
        batch_size=700,
        learning_rate=2e-3,
        clip="global",
        schedule="one-cycle",
        log_every=50,
        evaluate_every=200,
        save_every=200,
    )
    return replace(
        paper,
        model=model,
        data=TranslationData(pieces=3_000, longest=50),
        train=train,
        refine=Refinement(training=3, decoding=4),
    )


def _tiny(corpus: str, coefficients: ModelConfig) -> TranslationConfig:
    small = _small(corpus, coefficients)
    return replace(
        small,
        model=replace(small.model, depth=1, width=16, heads=2, feedforward=16),
        data=replace(small.data, pieces=400, longest=30),
        train=replace(small.train, steps=8, batch_size=256, log_every=4, evaluate_every=4, save_every=4),
        refine=Refinement(training=2, decoding=1),
    )

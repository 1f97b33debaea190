"""What the picture experiments ask for at each scale, and the paper's two tables."""

from dataclasses import dataclass, replace

from ..training.config import TrainConfig
from .configuration import nearest
from .experiment import SCALES
from .models import ModelConfig, named

# height, width, channels
SHAPES = {"digits": (8, 8, 1), "mnist": (28, 28, 1), "fashion": (28, 28, 1), "cifar10": (32, 32, 3)}

# Table 1: β, γ, and β, γ of the connection. The paper has no digits and no Fashion-MNIST: they take MNIST's.
MNIST_COEFFICIENTS = ModelConfig(beta=0.6, gamma=0.9, connection_beta=0.1, connection_gamma=0.99, depth=8)
CIFAR_COEFFICIENTS = ModelConfig(beta=0.1, gamma=0.9, connection_beta=0.1, connection_gamma=0.9, depth=16)

# Tables 2 and 3: bits/dim and images per second
PAPER_TABLES = {
    "mnist": {
        "softmax": (0.84, 0.45),
        "linear": (0.85, 142.8),
        "momentum": (0.84, 139.7),
        "momentum-connection": (0.82, 135.5),
        "adaptive-momentum": (0.80, 134.9),
    },
    "cifar10": {
        "softmax": (3.20, 0.004),
        "linear": (3.44, 17.85),
        "momentum": (3.43, 17.52),
        "momentum-connection": (3.41, 17.11),
        "adaptive-momentum": (3.38, 17.07),
    },
}


@dataclass(frozen=True)
class PictureData:
    pool: int = 1  # blocks of pool × pool pixels are averaged to one
    validation: int = 5_000  # images held out of the training set

    def __post_init__(self) -> None:
        for name in ("pool", "validation"):
            if getattr(self, name) < 1:
                raise ValueError(f"data.{name} must be 1 or more, not {getattr(self, name)}")


@dataclass(frozen=True)
class PictureConfig:
    model: ModelConfig
    data: PictureData
    train: TrainConfig


def picture_config(images: str, model: str, scale: str) -> PictureConfig:
    """The configuration of one data set, model and scale."""
    if scale not in SCALES:
        raise nearest("scale", scale, SCALES)
    coefficients = named(CIFAR_COEFFICIENTS if images == "cifar10" else MNIST_COEFFICIENTS, model)
    if scale == "paper":
        return _paper(images, coefficients)
    return _small(images, coefficients) if scale == "small" else _tiny(images, coefficients)


def _paper(images: str, coefficients: ModelConfig) -> PictureConfig:
    """The rates and batch sizes are those of the paper's experiments; digits: as MNIST, for as many passes."""
    if images == "cifar10":
        batch_size = 1 if coefficients.attention == "softmax" else 4
        steps, rate = 5_000_000 // batch_size, 2e-4
    else:
        batch_size, rate = 10, 1e-4
        steps = 33_750 if images == "digits" else 1_500_000
    every = steps // (100 if images == "cifar10" else 250)
    train = TrainConfig(
        steps=steps,
        batch_size=batch_size,
        learning_rate=rate,
        evaluate_every=every,
        save_every=every,
        log_every=min(100, every),
    )
    return PictureConfig(coefficients, PictureData(validation=150 if images == "digits" else 5_000), train)


# scale small: what fits into a few minutes on two CPU cores
SMALL = {
    "digits": (PictureData(validation=150), 3_000, 64),
    "mnist": (PictureData(pool=2, validation=500), 1_500, 32),
    "fashion": (PictureData(pool=2, validation=500), 1_500, 32),
    "cifar10": (PictureData(pool=4, validation=500), 1_500, 32),
}


def _small(images: str, coefficients: ModelConfig) -> PictureConfig:
    data, steps, batch_size = SMALL[images]
    # Deviation: no dropout where no image is seen more than a few times.
    dropout = 0.1 if images == "digits" else 0.0
    model = replace(
        coefficients, depth=4, width=64, heads=4, feedforward=256, dropout=dropout, attention_dropout=dropout
    )
    train = TrainConfig(
        steps=steps,
        batch_size=batch_size,
        learning_rate=2e-3,
        schedule="drop",
        drop_at=0.8,
        evaluate_every=steps // 20,
        save_every=steps // 4,
    )
    return PictureConfig(model, data, train)


def _tiny(images: str, coefficients: ModelConfig) -> PictureConfig:
    pool = {"digits": 2, "mnist": 7, "fashion": 7, "cifar10": 8}[images]
    model = replace(coefficients, depth=2, width=16, heads=2, feedforward=32, dropout=0.0, attention_dropout=0.0)
    train = TrainConfig(steps=20, batch_size=8, evaluate_every=10, save_every=10, log_every=5)
    return PictureConfig(model, PictureData(pool=pool, validation=64), train)

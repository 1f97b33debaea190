"""What the picture experiments ask for at each scale, and the paper's two tables."""

from dataclasses import dataclass, replace
from typing import ClassVar

from ...generation.grids import Shape
from ...training.config import TrainConfig
from ..experiment import check_scale
from ..model_config import ModelConfig, named

# height, width, channels
SHAPES = {"digits": (8, 8, 1), "mnist": (28, 28, 1), "fashion": (28, 28, 1), "cifar10": (32, 32, 3)}

# Table 1: β, γ, and β, γ of the connection. The paper has no digits and no Fashion-MNIST: they take MNIST's.
MNIST_COEFFICIENTS = {"beta": 0.6, "gamma": 0.9, "connection_beta": 0.1, "connection_gamma": 0.99, "depth": 8}
CIFAR_COEFFICIENTS = {"beta": 0.1, "gamma": 0.9, "connection_beta": 0.1, "connection_gamma": 0.9, "depth": 16}

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
    dither: int = 0  # training bytes other than 0 and 255 are spread evenly over so many values

    def __post_init__(self) -> None:
        if not 0 <= self.dither <= 255:
            raise ValueError(f"data.dither must be 0 to 255, not {self.dither}")
        for name in ("pool", "validation"):
            if getattr(self, name) < 1:
                raise ValueError(f"data.{name} must be 1 or more, not {getattr(self, name)}")

    def shape(self, images: str) -> Shape:
        height, width, channels = SHAPES[images]
        if height % self.pool or width % self.pool:
            raise ValueError(f"data.pool must divide {height} and {width}, not {self.pool}")
        return height // self.pool, width // self.pool, channels


@dataclass(frozen=True)
class OwnPictureData:
    """Pictures of one's own, all brought to one size."""

    pool: ClassVar = 1
    dither: ClassVar = 0
    source: str = ""  # a folder of PNG and JPEG files, or a tar archive of them
    size: int = 16  # pixels of a side
    colour: bool = False
    validation: int = 500  # images held out of the training set, at most a tenth of it

    def __post_init__(self) -> None:
        if not 2 <= self.size <= 256:
            raise ValueError(f"data.size must be from 2 to 256 pixels, not {self.size}")
        if self.validation < 1:
            raise ValueError(f"data.validation must be 1 or more, not {self.validation}")

    def shape(self, images: str) -> Shape:
        return self.size, self.size, 3 if self.colour else 1


# Digits have 17 grey levels, 16 bytes apart. Without dither a model spends its strength on finding them, and overfits.
DIGITS = PictureData(validation=150, dither=16)


@dataclass(frozen=True)
class PictureConfig:
    model: ModelConfig
    data: PictureData
    train: TrainConfig


@dataclass(frozen=True)
class OwnPictureConfig:
    model: ModelConfig
    data: OwnPictureData
    train: TrainConfig


def picture_config(images: str, model: str, scale: str) -> PictureConfig:
    """The configuration of one data set, model and scale."""
    check_scale(images, scale, lacks=("medium",) if images == "digits" else ())
    coefficients = named(model, CIFAR_COEFFICIENTS if images == "cifar10" else MNIST_COEFFICIENTS)
    return {"paper": _paper, "medium": _medium, "small": _small, "tiny": _tiny}[scale](images, coefficients)


def own_picture_config(model: str, scale: str) -> OwnPictureConfig:
    """Pictures of one's own: models and training as for MNIST."""
    check_scale("images", scale, lacks=("paper",))
    config = picture_config("mnist", model, scale)
    sizes = {"tiny": OwnPictureData(size=4, validation=64), "medium": OwnPictureData(size=28)}
    return OwnPictureConfig(config.model, sizes.get(scale, OwnPictureData()), config.train)


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
    return PictureConfig(coefficients, DIGITS if images == "digits" else PictureData(), train)


def _medium(images: str, coefficients: ModelConfig) -> PictureConfig:
    """What fits into an hour on two CPU cores: MNIST at its full size, CIFAR-10 at half its height and width."""
    small = _small(images, coefficients)
    model = replace(small.model, depth=4, width=128, heads=4, feedforward=512)
    train = replace(
        small.train,
        steps=4_000,
        batch_size=10,
        learning_rate=2e-3,
        log_every=20,
        evaluate_every=200,
        save_every=100,
    )
    return PictureConfig(model, PictureData(pool=2 if images == "cifar10" else 1, validation=500), train)


def _small(images: str, coefficients: ModelConfig) -> PictureConfig:
    """What fits into a few minutes on two CPU cores."""
    if images == "digits":
        data, steps = DIGITS, 1_500
        depth, width, heads = 3, 128, 4
    else:
        data, steps = PictureData(pool=4 if images == "cifar10" else 2, validation=250), 1_000
        depth, width, heads = 4, 64, 2
    # Deviation: no dropout. Images are seen once at most, or are digits, whose dither is noise enough.
    model = coefficients.having(
        depth=depth,
        width=width,
        heads=heads,
        feedforward=4 * width,
        dropout=0.0,
        attention_dropout=0.0,
    )
    train = TrainConfig(
        steps=steps,
        batch_size=16,
        learning_rate=2e-3 if images == "digits" else 4e-3,
        betas=(0.9, 0.98),  # at 0.999, RAdam takes small steps for longer than these runs last
        schedule="drop",
        drop_at=0.7,
        evaluate_every=100,
        save_every=500,
    )
    return PictureConfig(model, data, train)


def _tiny(images: str, coefficients: ModelConfig) -> PictureConfig:
    pool = {"digits": 2, "mnist": 7, "fashion": 7, "cifar10": 8}[images]
    dither = DIGITS.dither if images == "digits" else 0
    model = coefficients.having(depth=2, width=16, heads=2, feedforward=32, dropout=0.0, attention_dropout=0.0)
    train = TrainConfig(steps=20, batch_size=8, evaluate_every=10, save_every=10, log_every=5)
    return PictureConfig(model, PictureData(pool, 64, dither), train)

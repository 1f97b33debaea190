"""What the page needs to know of a model that draws, and nothing more."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol


@dataclass(frozen=True)
class Picture:
    """The shape of a picture: rows from the top, pixels from the left, channels interleaved, one byte each."""

    width: int
    height: int
    channels: int

    @property
    def size(self) -> int:
        """How many bytes, which is also how many dimensions bits/dim counts."""
        return self.width * self.height * self.channels


class Step(NamedTuple):
    """One drawn byte."""

    value: int
    bits: float  # -log₂ of the probability the model gave to it
    state_bytes: int  # what the model remembers of those before it
    seconds: float  # how long the model took


class Drawable(Protocol):
    """A model that completes pictures. Its methods run in one worker thread, never in two at a time."""

    @property
    def name(self) -> str:
        """What the viewer reads, different for every model of a page."""

    @property
    def subject(self) -> str:
        """What it was trained on: models of one subject are shown side by side."""

    @property
    def picture(self) -> Picture: ...

    @property
    def momentum(self) -> tuple[float, float] | None:
        """β and γ of its attention, where it has momentum with the paper's weights."""

    def examples(self) -> Sequence[bytes]:
        """Whole pictures from the test split; none where the data is not on this machine."""

    def given_bits(self, given: bytes) -> float:
        """-log₂ of the probability of the first bytes of a picture."""

    def draw(self, given: bytes, *, temperature: float, seed: int) -> Iterator[Step]:
        """The bytes after the given ones, one at a time, to the end of the picture."""


def describe(models: Sequence[Drawable]) -> dict[str, Any]:
    """The models and the test pictures of each subject, for the page."""
    subjects: dict[str, list[list[int]]] = {}
    for model in models:
        if not subjects.get(model.subject):
            subjects[model.subject] = [list(example) for example in model.examples()]
    return {
        "models": [
            {
                "name": model.name,
                "subject": model.subject,
                "width": model.picture.width,
                "height": model.picture.height,
                "channels": model.picture.channels,
                "momentum": model.momentum,
            }
            for model in models
        ],
        "examples": subjects,
    }

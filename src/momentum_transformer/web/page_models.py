"""What the page needs to know of a model that draws, translates or writes, and nothing more."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ..errors import UserError


@dataclass(frozen=True)
class Picture:
    """The shape of a picture: rows from the top, pixels from the left, channels interleaved, one byte each."""

    width: int
    height: int
    channels: int

    @property
    def size(self) -> int:
        """How many bytes a picture has, which is how many dimensions bits/dim counts."""
        return self.width * self.height * self.channels


class Step(NamedTuple):
    """One drawn byte."""

    value: int
    bits: float  # -log₂ of the probability the model gave to it
    state_bytes: int  # what the model remembers of those before it
    seconds: float  # how long the model took


class Model(Protocol):
    """What all models have. Their methods run in one worker thread, never in two at a time."""

    @property
    def name(self) -> str:
        """What the viewer reads, different for every model of a page."""

    @property
    def note(self) -> str:
        """What else to know of it, such as the step of a run that is not finished; often nothing."""


class Drawable(Model, Protocol):
    """A model that completes pictures."""

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


class RefusedError(UserError):
    """A text that a model cannot translate or continue; the message is for the viewer."""


class Draft(NamedTuple):
    """A translation after one step."""

    words: tuple[str, ...]
    tokens: int  # what the model counts its words in
    seconds: float  # how long the step took


class Example(NamedTuple):
    """A sentence from the test split."""

    source: str
    reference: str


class Translating(Model, Protocol):
    """A model that translates."""

    @property
    def languages(self) -> tuple[str, str]:
        """Codes such as en and de: models of the same two are shown side by side."""

    @property
    def refinements(self) -> int | None:
        """How many it was meant to make; None where the first draft, made word by word, is all there is."""

    def examples(self) -> Sequence[Example]:
        """Sentences of the test split; none where the run was not finished."""

    def translate(self, text: str, *, refinements: int, until_fixed: bool) -> Iterator[Draft]:
        """The first draft, then that after each refinement; a `RefusedError` where the text cannot be translated."""


class Written(NamedTuple):
    """One more token of a text."""

    text: str  # empty where a character needs more than this token
    state_bytes: int  # what the model remembers of the text so far
    seconds: float  # how long the model took


class Writing(Model, Protocol):
    """A model that continues texts."""

    @property
    def prompt(self) -> str:
        """A text to begin with, of the kind that it was trained on."""

    def write(self, prompt: str, *, tokens: int, temperature: float, seed: int) -> Iterator[Written]:
        """The tokens that follow the prompt, `tokens` of them; a `RefusedError` where the prompt cannot be encoded."""


def describe(
    models: Sequence[Drawable], translators: Sequence[Translating] = (), writers: Sequence[Writing] = ()
) -> dict[str, Any]:
    """The models, the test pictures of each subject and the test sentences of each language, for the page."""
    subjects: dict[str, list[list[int]]] = {}
    for model in models:
        if not subjects.get(model.subject):
            subjects[model.subject] = [list(example) for example in model.examples()]
    sentences: dict[str, list[dict[str, str]]] = {}
    for translator in translators:
        pair = "-".join(translator.languages)
        if not sentences.get(pair):
            sentences[pair] = [example._asdict() for example in translator.examples()]
    return {
        "models": [
            {
                "name": model.name,
                "note": model.note,
                "subject": model.subject,
                "width": model.picture.width,
                "height": model.picture.height,
                "channels": model.picture.channels,
                "momentum": model.momentum,
            }
            for model in models
        ],
        "examples": subjects,
        "translators": [
            {
                "name": translator.name,
                "note": translator.note,
                "source": translator.languages[0],
                "target": translator.languages[1],
                "refinements": translator.refinements,
            }
            for translator in translators
        ],
        "sentences": sentences,
        "writers": [{"name": writer.name, "note": writer.note, "prompt": writer.prompt} for writer in writers],
    }

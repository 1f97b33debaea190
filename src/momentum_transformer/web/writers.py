"""A trained language model as the page shows it."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from ..experiments.configuration import ConfigurationError
from ..experiments.prompts import prompt_tokens, readable
from ..experiments.text import TextTask
from ..generation.tokens import Sampling, Writer
from .page_models import RefusedError, Written

PROMPT = "ROMEO:\n"


@dataclass(frozen=True)
class TrainedWriter:
    """A trained text run; `Writing` says what its parts mean."""

    name: str
    note: str
    task: TextTask
    prompt: str = PROMPT

    def write(self, prompt: str, *, tokens: int, temperature: float, seed: int) -> Iterator[Written]:
        try:
            given = prompt_tokens(self.task, prompt)
        except ConfigurationError as error:
            raise RefusedError(str(error)) from None
        writer = Writer(self.task.language_model, given, tokens=tokens, context=self.task.longest())
        written = writer.write(Sampling(temperature, seed=seed))
        texts = readable(self.task.units.tokens[token] for token in written)
        for _ in range(tokens):
            before = time.perf_counter()
            text = next(texts)
            seconds = time.perf_counter() - before
            yield Written(text, writer.state_bytes(), seconds)

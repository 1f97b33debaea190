"""A trained language model as the page shows it."""

import codecs
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from ..experiments.text import TextTask
from ..models.language_model import LanguageModel
from ..ops.state import state_bytes
from .models import RefusedError, Written

PROMPT = "ROMEO:\n"


@dataclass(frozen=True)
class TrainedWriter:
    """A trained text run; `Writing` says what its parts mean."""

    name: str
    note: str
    task: TextTask
    prompt: str = PROMPT

    def write(self, prompt: str, *, temperature: float, seed: int) -> Iterator[Written]:
        model = self.task.model
        assert isinstance(model, LanguageModel)
        model.eval()
        tokens = list(prompt.encode())
        if not tokens:
            raise RefusedError("empty")
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        generator = torch.Generator().manual_seed(seed)
        before = time.perf_counter()
        state = None
        while True:
            with torch.inference_mode():
                if state is None:
                    y, state = model.prefill(torch.tensor([tokens]))
                    logits = y[:, -1]
                else:
                    logits, state = model.step(token, state)
                token = torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)[:, 0]
            seconds = time.perf_counter() - before
            yield Written(decoder.decode(bytes([int(token)])), state_bytes(state), seconds)
            before = time.perf_counter()

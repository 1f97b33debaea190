"""Text token by token: constant time and memory a token (softmax attention keeps a cache)."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..decoding.decoder import Decoder, can_decode
from ..models.language_model import LanguageModel, LanguageModelState
from ..ops.checks import TEMPERATURE, Interval, check_number, check_whole
from ..ops.state import state_tensors

TOP_P = Interval("above 0 and at most 1", 0.0, 1.0, has_high=True)


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen: at temperature 0 the most likely one, else one of the most likely `top_k` (0: of
    all) that together have at least `top_p` of the probability. Deterministic by the seed."""

    temperature: float = 0.8
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_number("temperature", self.temperature, TEMPERATURE)
        check_whole("top-k", self.top_k)
        if self.top_k < 0:
            raise ValueError(f"top-k must be 1 or more, or 0 for all tokens, not {self.top_k}")
        check_number("top-p", self.top_p, TOP_P)
        check_whole("seed", self.seed)

    def choose(self, logits: Tensor, generator: torch.Generator) -> int:
        """A token by its logits (vocabulary,)."""
        if self.temperature == 0:
            return int(logits.argmax())
        p, order = (logits.double() / self.temperature).softmax(0).sort(descending=True, stable=True)
        kept = (p.cumsum(0) - p) < self.top_p  # the first one always is
        if self.top_k:
            kept[self.top_k :] = False
        return int(order[torch.multinomial(torch.where(kept, p, 0), 1, generator=generator)])


class Writer:
    """Continues one prompt, by the native decoder where it serves the model.

    Args:
        prompt: at least one token.
        tokens: how many may follow.
        context: how many the model can see at once, where it has positions. When so many are in its state, it begins
            again with the last half of them.
    """

    def __init__(self, model: LanguageModel, prompt: list[int], *, tokens: int, context: int | None) -> None:
        if not prompt:
            raise ValueError("a prompt needs at least one token")
        check_whole("tokens", tokens, 0)
        if context is not None:
            check_whole("context", context, 1)
        self.model, self.seen, self.context, self.left = model, list(prompt), context, tokens
        self.device = next(model.parameters()).device
        self._state: LanguageModelState | None = None
        self._decoder: Decoder | None = None

    def write(self, sampling: Sampling) -> Iterator[int]:
        """The tokens that follow."""
        generator = torch.Generator().manual_seed(sampling.seed % 2**63)
        was_training = self.model.training
        logits = None
        while self.left:
            self.model.eval()
            with torch.inference_mode():  # not on while the caller has its turn
                logits = self._begin(self.seen[-(self.context or 0) :]) if logits is None else self._advance()
                token = sampling.choose(logits.cpu(), generator)
            self.model.train(was_training)
            self.seen.append(token)
            self.left -= 1
            yield token

    def _advance(self) -> Tensor:
        """Logits after the last token."""
        assert self._state is not None
        position = int(self._state.position)
        if self.context is not None and position >= self.context:
            return self._begin(self.seen[-max(1, self.context // 2) :])
        token = torch.tensor(self.seen[-1:], device=self.device)
        if self._decoder is None:
            logits, self._state = self.model.step(token, self._state)
            return logits[0]
        embedded = self.model.embed(token, self._state.position)
        self._state = self._state._replace(position=self._state.position + 1)
        return self._decoder.step(embedded)[0]

    def _begin(self, tokens: list[int]) -> Tensor:
        """Logits after these tokens, from no state."""
        logits, self._state = self.model.prefill(torch.tensor([tokens], device=self.device))
        if can_decode(self.model.encoder):
            room = self.left if self.context is None else self.context - len(tokens)
            self._decoder = Decoder(
                self.model.encoder, self._state.encoder, max_new_tokens=room, head=self.model.head_weights()
            )
        return logits[0, -1]

    def state_bytes(self) -> int:
        """What the model remembers now."""
        if self._state is None:
            return 0
        state = self._state.encoder if self._decoder is None else self._decoder.state
        return sum(tensor.nbytes for tensor in state_tensors(state).values())

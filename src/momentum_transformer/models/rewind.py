"""States that can go back: what speculative decoding needs when guesses turn out wrong."""

from typing import NamedTuple

import torch
from torch import Tensor

from .encoder import Encoder, EncoderState


class RewindState(NamedTuple):
    """An encoder's state, and what it takes to go back: earlier states, and the inputs since the first of them."""

    encoder: EncoderState  # after the last token
    marks: tuple[EncoderState, ...]  # earlier states
    places: tuple[int, ...]  # how many tokens of x each mark has seen; the first has seen none
    x: Tensor  # (b, m, width)
    mask: Tensor  # (b, m)  False where the token does not exist


class Rewind:
    """Runs a causal encoder so that its state can go back `keep` tokens or a few more, exactly, whatever its mixers.

    States are immutable, so an earlier one is kept by not forgetting it: two marks at least `keep` tokens apart, and
    the inputs since the older one. Going back starts from the nearest mark and replays what follows it; as long as
    nobody goes back, nothing is computed twice.

    Args:
        encoder: a causal one.
        keep: how many tokens can be taken back for certain.

    Examples:
        >>> rewind = Rewind(Encoder(2, 16, 2), keep=8)
        >>> y, state = rewind(torch.randn(3, 50, 16))  # as encoder(x, return_state=True)
        >>> y, state = rewind(torch.randn(3, 5, 16), state)  # five guesses
        >>> state = rewind.back(state, 3)  # the last three of them were never seen
    """

    def __init__(self, encoder: Encoder, *, keep: int) -> None:
        if not encoder.causal:
            raise ValueError("Rewind needs Encoder(causal=True): otherwise there is no state")
        if isinstance(keep, bool) or not isinstance(keep, int) or keep < 1:
            raise ValueError(f"keep must be 1 token or more, not {keep!r}")
        self.encoder, self.keep = encoder, keep

    def __call__(
        self, x: Tensor, state: RewindState | EncoderState | None = None, *, key_mask: Tensor | None = None
    ) -> tuple[Tensor, RewindState]:
        """All tokens of x at once, as `encoder(x, return_state=True)`.

        Args:
            x: tokens (b, n, width).
            state: what earlier tokens left behind; an encoder's own state goes back no further than here.
            key_mask: (b, n) False where a token does not exist.

        Returns:
            The pair of y (b, n, width), and of the state after x.
        """
        if not isinstance(state, RewindState):
            state = self._begin(x, state)
        mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if key_mask is None else key_mask
        outputs, cut = [], x.shape[1] - self.keep
        if cut > 0:  # of a long text, only the end can be taken back
            y, middle = self._run(x[:, :cut], state.encoder, None if key_mask is None else mask[:, :cut])
            outputs.append(y)
            state = self._begin(x, middle)
            x, mask = x[:, cut:], mask[:, cut:]
        y, after = self._run(x, state.encoder, None if key_mask is None else mask)
        return torch.cat([*outputs, y], 1), self._forget(self._append(state, after, x, mask))

    def back(self, state: RewindState, count: int | Tensor) -> RewindState:
        """Take tokens back.

        Args:
            state: of a call of this object.
            count: how many tokens, a number, or one a row (b,), as rows accept different guesses.

        Returns:
            The state without these tokens.
        """
        length = state.x.shape[1]
        most, least = (count, count) if isinstance(count, int) else (int(count.max()), int(count.min()))
        if least < 0 or most > length:
            raise ValueError(f"this state can go back 0 to {length} tokens, not {count}; Rewind(keep=...) keeps more")
        if most == 0:
            return state
        mask = state.mask
        if isinstance(count, Tensor):  # what only some rows take back does not exist in them
            column = torch.arange(length, device=mask.device)
            mask = mask & (column < length - count.to(mask.device)[:, None])
        first = sum(place <= length - most for place in state.places)
        marks, places = state.marks[:first], state.places[:first]
        x, mask = state.x[:, : length - least], mask[:, : length - least]
        encoder = marks[-1]
        if places[-1] < length - least:
            encoder = self._run(x[:, places[-1] :], encoder, mask[:, places[-1] :])[1]
        return RewindState(encoder, marks, places, x, mask)

    def _run(self, x: Tensor, state: EncoderState | None, mask: Tensor | None) -> tuple[Tensor, EncoderState]:
        made: tuple[Tensor, EncoderState] = self.encoder(x, key_mask=mask, state=state, return_state=True)
        return made

    def _begin(self, x: Tensor, state: EncoderState | None) -> RewindState:
        state = self.encoder.initial_state(x.shape[0]) if state is None else state
        return RewindState(state, (state,), (0,), x[:, :0], torch.ones_like(x[:, :0, 0], dtype=torch.bool))

    def _append(self, state: RewindState, after: EncoderState, x: Tensor, mask: Tensor) -> RewindState:
        marks, places, length = state.marks, state.places, state.x.shape[1]
        if length - places[-1] >= self.keep:
            marks, places = (*marks, state.encoder), (*places, length)
        return RewindState(after, marks, places, torch.cat([state.x, x], 1), torch.cat([state.mask, mask], 1))

    def _forget(self, state: RewindState) -> RewindState:
        """Marks that a younger one makes superfluous."""
        length = state.x.shape[1]
        start = max((place for place in state.places if place <= length - self.keep), default=0)
        first = state.places.index(start)
        places = tuple(place - start for place in state.places[first:])
        return state._replace(
            marks=state.marks[first:], places=places, x=state.x[:, start:], mask=state.mask[:, start:]
        )

"""States that can go back: what speculative decoding needs when guesses turn out wrong."""

from typing import NamedTuple

import torch
from torch import Tensor

from .encoder import Encoder, EncoderState


class RewindState(NamedTuple):
    """An encoder's state, and what it takes to go back: earlier states, and the inputs since the first of them."""

    encoder: EncoderState  # after the last token
    marks: tuple[EncoderState | None, ...]  # earlier states, None before the first token of all
    places: tuple[int, ...]  # how many tokens of x each mark has seen; the first has seen none
    x: Tensor  # (b, m, width)
    mask: Tensor  # (b, m)  False where the token does not exist
    gone: Tensor  # (b, m)  True where the row took the token back, which other rows did not


class Rewind:
    """Runs a causal encoder so that its state can go back `keep` tokens or a few more, exactly, whatever its mixers.

    States are immutable, so an earlier one is kept by not forgetting it: two marks at least `keep` tokens apart, and
    the inputs since the older one. Going back starts from the nearest mark and replays what follows it; as long as
    nobody goes back, nothing is computed twice.

    Args:
        encoder: a causal one.
        keep: how many tokens can be taken back for certain, of those that came since tokens were last taken back.

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
        past = state if isinstance(state, RewindState) else self._begin(x, state)
        mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if key_mask is None else key_mask
        outputs, cut = [], x.shape[1] - self.keep
        if cut > 0:  # of a long text, only the end can be taken back
            y, middle = self._run(x[:, :cut], past.encoder, None if key_mask is None else mask[:, :cut])
            outputs.append(y)
            past = self._begin(x, middle)
            x, mask = x[:, cut:], mask[:, cut:]
        y, after = self._run(x, past.encoder, None if key_mask is None else mask)
        return torch.cat([*outputs, y], 1), self._forget(self._append(past, after, x, mask))

    def back(self, state: RewindState, count: int | Tensor) -> RewindState:
        """Take tokens back.

        Args:
            state: of a call of this object.
            count: how many of its last tokens each row takes back: a number, or whole numbers (b,), as rows accept
                different guesses. Masked tokens count; those that the row took back before do not.

        Returns:
            The state without these tokens.
        """
        counts = _one_a_row(state, count)
        had = ~state.gone
        most = had.sum(1)
        if bool((counts < 0).any()) or bool((counts > most).any()):
            given = count.tolist() if isinstance(count, Tensor) else count
            allowed = f"0 to {int(most.min())} tokens" + (" in all rows" if bool((most != most[0]).any()) else "")
            raise ValueError(f"this state can go back {allowed}, not {given}; Rewind(keep=...) keeps more")
        if not bool(counts.any()):
            return state
        taken = had & (had.flip(1).cumsum(1).flip(1) <= counts[:, None])
        gone = state.gone | taken
        stays = (~gone).any(0).nonzero()
        length = int(stays[-1]) + 1 if len(stays) else 0
        unchanged = min(int(taken.any(0).nonzero()[0]), length)
        first = sum(place <= unchanged for place in state.places)
        marks, places = state.marks[:first], state.places[:first]
        x, mask, gone = state.x[:, :length], state.mask[:, :length], gone[:, :length]
        encoder, start = marks[-1], places[-1]
        if start < length:
            encoder = self._run(x[:, start:], encoder, (mask & ~gone)[:, start:])[1]
        elif encoder is None:
            encoder = self.encoder.initial_state(x.shape[0])
        return RewindState(encoder, marks, places, x, mask, gone)

    def _run(self, x: Tensor, state: EncoderState | None, mask: Tensor | None) -> tuple[Tensor, EncoderState]:
        made: tuple[Tensor, EncoderState] = self.encoder(x, key_mask=mask, state=state, return_state=True)
        return made

    def _begin(self, x: Tensor, state: EncoderState | None) -> RewindState:
        none = torch.zeros_like(x[:, :0, 0], dtype=torch.bool)
        return RewindState(state, (state,), (0,), x[:, :0], none, none)  # type: ignore[arg-type]  # until tokens come

    def _append(self, state: RewindState, after: EncoderState, x: Tensor, mask: Tensor) -> RewindState:
        marks, places, length = state.marks, state.places, state.x.shape[1]
        if length - places[-1] >= self.keep:
            marks, places = (*marks, state.encoder), (*places, length)
        masks = torch.cat([state.mask, mask], 1)
        gone = torch.cat([state.gone, torch.zeros_like(mask)], 1)
        return RewindState(after, marks, places, torch.cat([state.x, x], 1), masks, gone)

    def _forget(self, state: RewindState) -> RewindState:
        """Marks that a younger one makes superfluous."""
        enough = [place for place in state.places if int((~state.gone[:, place:]).sum(1).min()) >= self.keep]
        start = max(enough, default=0)
        first = state.places.index(start)
        return RewindState(
            state.encoder,
            state.marks[first:],
            tuple(place - start for place in state.places[first:]),
            *(part[:, start:] for part in (state.x, state.mask, state.gone)),
        )


def _one_a_row(state: RewindState, count: int | Tensor) -> Tensor:
    """Counts (b,) on the state's device."""
    rows, device = state.x.shape[0], state.x.device
    if isinstance(count, Tensor):
        whole = not (count.is_floating_point() or count.is_complex() or count.dtype == torch.bool)
        if whole and tuple(count.shape) == (rows,):
            return count.to(device)
        given = f"{count.dtype} of shape {tuple(count.shape)}"
    elif isinstance(count, int) and not isinstance(count, bool):
        return torch.full((rows,), count, device=device)
    else:
        given = repr(count)
    raise ValueError(
        "count must be a whole number of tokens, or a tensor of whole numbers, one for each of "
        f"{rows} rows, not {given}"
    )

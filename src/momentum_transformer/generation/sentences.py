"""Translations: refined step by step all words at once, or word by word."""

from collections.abc import Iterator

import torch
from torch import Tensor

from ..models.autoregressive_translator import AutoregressiveTranslator
from ..models.nonautoregressive_translator import NonAutoregressiveTranslator
from ..models.token_loss import most_likely
from ..ops.checks import check_whole
from ..ops.state import reorder_state


def refine(
    model: NonAutoregressiveTranslator,
    source: Tensor,
    source_mask: Tensor,
    *,
    steps: int,
    until_fixed: bool = False,
    lengths: Tensor | None = None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields tokens (b, T) and their mask: decoder 1's guess, then after each of up to `steps` refinements.

    Args:
        until_fixed: a sentence that a step leaves as it was is done: the others go on without it, and after the last
            of them the iterator ends.
        lengths: of the translations, (b,); by default the model's own prediction.
    """
    _check(model, source)
    check_whole("steps", steps, 0)
    if lengths is not None and not isinstance(lengths, Tensor):
        raise ValueError(f"lengths must be a tensor, not {type(lengths).__name__}")
    if lengths is not None and (lengths.shape != source.shape[:1] or lengths.dtype != torch.int64):
        raise ValueError(
            f"lengths must be int64 of shape ({source.shape[0]},), not {lengths.dtype} of shape {tuple(lengths.shape)}"
        )
    if lengths is not None and bool((lengths < 1).any()):
        raise ValueError(f"lengths must be 1 or more, not {int(lengths.min())}")
    return _refine(model, source, source_mask, steps, until_fixed, lengths)


def _refine(
    model: NonAutoregressiveTranslator,
    source: Tensor,
    source_mask: Tensor,
    steps: int,
    until_fixed: bool,
    lengths: Tensor | None,
) -> Iterator[tuple[Tensor, Tensor]]:
    with torch.inference_mode():  # not while the caller has its turn
        encoded = model.encode(source, source_mask)
        lengths = model.predict_lengths(encoded) if lengths is None else lengths
        mask = torch.arange(int(lengths.max()), device=source.device) < lengths[:, None]
        hidden = model.decode(encoded, model.first_input(encoded, lengths), mask, first=True)
        tokens = model.words(hidden, mask, first=True)
        sources = model.sources(encoded, first=False) if steps else ()
        at_work, real, mine = torch.arange(len(source), device=source.device), mask, tokens.clone()
    yield tokens.clone(), mask.clone()
    for _ in range(steps):
        with torch.inference_mode():
            x = model.next_input(mine, hidden)
            hidden = model.decode(encoded, x, real, first=False, sources=sources)
            found = model.words(hidden, real, first=False)
            changed, mine = (found != mine).any(1), found
            tokens[at_work, : found.shape[1]] = found
            if until_fixed and not bool(changed.all()):
                rows = changed.nonzero()[:, 0]
                longest = int(real[rows].sum(1).max()) if len(rows) else 0
                at_work, real, mine, hidden = (
                    at_work[rows],
                    real[rows, :longest],
                    mine[rows, :longest],
                    hidden[rows, :longest],
                )
                encoded, sources = reorder_state(encoded, rows), reorder_state(sources, rows)
        yield tokens.clone(), mask.clone()
        if not len(at_work):
            return


def translate(
    model: NonAutoregressiveTranslator,
    source: Tensor,
    source_mask: Tensor,
    *,
    steps: int,
    until_fixed: bool = False,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The last step of `refine`: tokens (b, T) and their mask."""
    refined = refine(model, source, source_mask, steps=steps, until_fixed=until_fixed, lengths=lengths)
    tokens, mask = next(refined)
    for tokens, mask in refined:  # noqa: B007 (the last one counts)
        pass
    return tokens, mask


def translate_greedily(
    model: AutoregressiveTranslator, source: Tensor, source_mask: Tensor, *, limit: int | None = None
) -> tuple[Tensor, Tensor]:
    """Greedy decoding, word by word: tokens (b, T) and their mask.

    A sentence ends with its END, or without after `limit` words, by default 2 × its source + 10; the others go on
    without it.
    """
    _check(model, source)
    if limit is not None:
        check_whole("limit", limit, 1)
    with torch.inference_mode():
        state = model.start(model.encode(source, source_mask))
        limits = source_mask.sum(1) * 2 + 10
        if limit is not None:
            limits = torch.full_like(limits, limit)
        found = source.new_full((len(source), int(limits.max())), model.padding)
        lengths = torch.zeros_like(limits)
        at_work = torch.arange(len(source), device=source.device)
        word = source.new_full((len(source),), model.start_token)
        while len(at_work):
            logits, state = model.step(word, state)
            word = most_likely(logits)
            found[at_work, state.position - 1] = word
            lengths[at_work] = state.position
            goes_on = (word != model.end) & (limits[at_work] > state.position)
            if not bool(goes_on.all()):
                rows = goes_on.nonzero()[:, 0]
                at_work, word, state = at_work[rows], word[rows], reorder_state(state, rows)
        found = found[:, : int(lengths.max())]
        mask = torch.arange(found.shape[1], device=source.device) < lengths[:, None]
    return found.clone(), mask.clone()


def _check(model: torch.nn.Module, source: Tensor) -> None:
    if model.training:
        raise ValueError("the model must be in evaluation mode, without dropout: call model.eval()")
    if source.ndim != 2:
        raise ValueError(f"source must have shape (batch, length), not {tuple(source.shape)}")

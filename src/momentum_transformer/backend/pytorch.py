"""The PyTorch backends: the pure forms of `ops`, with masks, dtypes and the division around them. Any device."""

from dataclasses import dataclass

import torch

from ..ops.autocast import full_precision
from ..ops.bidirectional import bidirectional, key_weights, weights_by_distance
from ..ops.chunked import chunked_scan
from ..ops.coefficients import forget_at, skip_masked
from ..ops.memo import memo
from ..ops.quadratic import momentum_quadratic
from ..ops.recurrent import Attended, token_by_token
from ..ops.shapes import Tensor
from ..ops.state import RecurrentState
from .call import Call, hidden

CHUNK_SIZE = 128  # tokens
SOLVED_CHUNK_SIZE = 64  # where there is a system to solve, whose cost grows with the square
CHANNEL_CHUNK_SIZE = 16  # where each channel has a weight of its own for every pair
MEMO_LENGTH = 4096  # weights of longer sequences are made anew


def finished(call: Call, read: Attended) -> Tensor:
    """Divide, hide what does not exist, and round once."""
    numerator, denominator, _ = read
    if call.normalize and denominator is not None:
        if call.query_mask is not None:  # no division by zero where there is no query
            denominator = torch.where(call.query_mask[:, None, :], denominator, 1)
        # Deviation: eps, so that a query that sees no key gives 0 and not 0/0.
        # a product, because its backward pass needs fewer temporaries than that of a quotient
        numerator = numerator * (1 / (denominator + call.eps))[..., None]
    return hidden(numerator, call.query_mask).to(call.q.dtype)


@dataclass(frozen=True)
class Chunked:
    """Every member in linear time: quadratic in chunks, recurrent between them."""

    name: str = "chunked"

    def refusal(self, call: Call) -> str | None:
        return None if call.causal else "it needs causal order"

    def run(self, call: Call) -> tuple[Tensor, RecurrentState | None]:
        with full_precision(call.q.device):
            # the paper's φ is applied chunk by chunk, and never stored; φ(-∞) = 0
            x = call.features(nothing=-torch.inf if call.elu else 0.0, mapped=not call.elu)
            c = x.c.broadcast()
            mask, reset = (None if m is None else m[:, None, :] for m in (x.key_mask, x.reset))
            if mask is not None:
                c = skip_masked(c, mask, x.v)
            if reset is not None:
                c = forget_at(c, reset, x.v)
            size = CHUNK_SIZE if c.delta is None else SOLVED_CHUNK_SIZE
            if c.alpha is not None and c.alpha.shape[-1] > 1:
                size = CHANNEL_CHUNK_SIZE
            read = chunked_scan(
                x.q, x.k, x.v, x.erase, c, x.before(x.k, x.v), size=call.chunk_size or size, reset=reset, elu=call.elu
            )
            return finished(call, read), read.state


@dataclass(frozen=True)
class Recurrent:
    """Every member token by token, as the equations are written."""

    name: str = "recurrent"

    def refusal(self, call: Call) -> str | None:
        return None if call.causal else "it needs causal order"

    def run(self, call: Call) -> tuple[Tensor, RecurrentState | None]:
        with full_precision(call.q.device):
            x = call.features()
            mask, reset = (None if m is None else m[:, None, :] for m in (x.key_mask, x.reset))
            before = x.before(x.k, x.v)
            read = token_by_token(x.q, x.k, x.v, x.erase, x.c.broadcast(), before, mask=mask, reset=reset)
            return finished(call, read), read.state


@dataclass(frozen=True)
class Quadratic:
    """The paper's closed form (eq. 13) as one n × n matrix: linear and momentum attention."""

    name: str = "quadratic"

    def refusal(self, call: Call) -> str | None:
        if not call.causal:
            return "it needs causal order"
        return unknown_to_the_paper(call)

    def run(self, call: Call) -> tuple[Tensor, RecurrentState | None]:
        with full_precision(call.q.device):
            x = call.features()
            beta = torch.zeros(1, dtype=x.v.dtype, device=x.v.device) if x.c.beta is None else x.c.beta
            gamma = torch.ones_like(beta) if x.c.gamma is None else x.c.gamma
            mask = None if x.key_mask is None else x.key_mask[:, None, :]
            before = x.before(x.k, x.v)
            read = momentum_quadratic(x.q, x.k, x.v, before, beta=beta, gamma=gamma, mask=mask)
            return finished(call, read), read.state


def unknown_to_the_paper(call: Call) -> str | None:
    """Why this is neither linear nor momentum attention with one β and γ a head; None where it is."""
    c = call.c
    alpha, beta, gamma, eta, delta, lookahead = c
    known = alpha is eta is delta is lookahead is call.reset is None and (beta is not None or gamma is None)
    if known and (beta is None or beta.ndim == 1) and (gamma is None or gamma.ndim == 1):
        return None
    others = {"alpha": c.alpha, "eta": c.eta, "delta": c.delta, "lookahead": c.lookahead, "reset": call.reset}
    given = [name for name, x in others.items() if x is not None]
    per_head = {"beta": c.beta, "gamma": c.gamma}
    given += [f"a {name} for each token" for name, x in per_head.items() if x is not None and x.ndim > 1]
    given += ["gamma without beta"] if c.gamma is not None and c.beta is None else []
    return f"it knows linear and momentum attention, not {', '.join(given)}" if given else None


@dataclass(frozen=True)
class Bidirectional:
    """Attention without causal order (eq. 5, 14), for every value of `backend` but "native"."""

    name: str = "bidirectional"

    def refusal(self, call: Call) -> str | None:
        return "it has no causal order" if call.causal else unknown_to_the_paper(call)

    def run(self, call: Call) -> tuple[Tensor, RecurrentState | None]:
        return without_causal_order(call, distance_weights(call, call.k.shape[2])), None


def without_causal_order(call: Call, weights: Tensor | None) -> Tensor:
    """y, given the weight of the r-th key from the end, (1 or h, m + 1)."""
    with full_precision(call.q.device):
        # heads side by side are copied once, not in every product
        call = call._replace(q=call.q.contiguous(), k=call.k.contiguous(), v=call.v.contiguous())
        # where φ(-∞) = 0, a key that does not exist need not be hidden a second time
        x = call.features(nothing=-torch.inf if call.elu else 0.0)
        mask = None if x.key_mask is None else x.key_mask[:, None, :]
        weight = None if weights is None else key_weights(weights, mask=mask)[..., None]
        numerator, denominator = bidirectional(x.q, x.k, x.v, weight)
        return finished(call, Attended(numerator, denominator, RecurrentState(numerator)))


def distance_weights(call: Call, length: int) -> Tensor | None:
    """The weight of the r-th key from the end, r = 0 … length, (1 or h, length + 1); None for ones."""
    beta, gamma = call.c.beta, call.c.gamma
    if beta is None or gamma is None:
        return None

    def make() -> tuple[Tensor]:
        return (weights_by_distance(beta, gamma, length).to(call.wide).contiguous(),)

    if call.numbers is None or length > MEMO_LENGTH:
        return make()[0]
    return memo((*call.numbers, length, call.wide, beta.device), make)[0]


CHUNKED, RECURRENT, QUADRATIC, BIDIRECTIONAL = Chunked(), Recurrent(), Quadratic(), Bidirectional()

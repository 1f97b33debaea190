"""The family: one recurrence, whose members are choices of six coefficients.

u_t = η_t (v_t - δ_t (s_{t-1} + ρ_t m_{t-1})ᵀ p_t)      p_t = k_t unless given
m_t = β_t m_{t-1} + k_t u_tᵀ
s_t = α_t s_{t-1} + γ_t m_t
y_t = s_tᵀ q_t
"""

from functools import partial
from typing import NamedTuple

import torch

from .checks import FINITE, MOMENTUM, SHARE, STEP_SIZE, Interval, check_coefficient, check_number, wide_dtype
from .memo import memo
from .shapes import Tensor


class Coefficients(NamedTuple):
    """One member. A coefficient is None where it is neutral, so that no form computes what changes nothing.

    Otherwise it has shape (1,) or (h,), float64, for all tokens, or (b, h, n), one a token; alpha also (b, h, n, d).
    `broadcast` brings all of them into one layout: (..., n or 1), and alpha (..., n or 1, d or 1).
    """

    alpha: Tensor | None = None  # decay of s; None: 1
    beta: Tensor | None = None  # decay of m; None: 0, and m is no part of the state
    gamma: Tensor | None = None  # step size, of m in s; None: 1
    eta: Tensor | None = None  # write strength, of v in u; None: 1
    delta: Tensor | None = None  # erase strength, of the prediction in u; None: 0
    lookahead: Tensor | None = None  # of m in the state that predicts (Nesterov); None: 0

    def hidden(self, mask: Tensor) -> "Coefficients":
        """Zeros where a token (b, n) does not exist, whatever stands there; before they are broadcast."""
        alpha, *others = (
            x
            if x is None or x.ndim < 3
            else torch.where(mask[:, None, :, None] if x.ndim == 4 else mask[:, None], x, 0)
            for x in self
        )
        return Coefficients(alpha, *others)

    def broadcast(self) -> "Coefficients":
        alpha, *others = (None if x is None else x[:, None] if x.ndim == 1 else x for x in self)
        if alpha is not None and alpha.ndim < 4:
            alpha = alpha[..., None]
        return Coefficients(alpha, *others)

    def tokens(self, start: int, stop: int) -> "Coefficients":
        """The coefficients of some tokens, after `broadcast`."""
        alpha, *others = self
        if alpha is not None and alpha.shape[-2] > 1:
            alpha = alpha[..., start:stop, :]
        return Coefficients(alpha, *(x if x is None or x.shape[-1] == 1 else x[..., start:stop] for x in others))

    @property
    def constant(self) -> bool:
        """Whether alpha, beta and gamma are the same at every token."""
        alpha, beta, gamma = self[:3]
        return (alpha is None or alpha.shape[-2] == 1) and all(x is None or x.shape[-1] == 1 for x in (beta, gamma))


def skip_masked(c: Coefficients, mask: Tensor, like: Tensor) -> Coefficients:
    """The member under a mask (..., n), False where a token does not exist, for k that are zero there.

    Such a token leaves s and m as they were: α = β = 1, and where there is an m, γ = 0.
    """
    alpha = None if c.alpha is None else torch.where(mask[..., None], c.alpha, 1)
    if c.beta is None:
        return c._replace(alpha=alpha)
    gamma = mask.to(like.dtype) if c.gamma is None else torch.where(mask, c.gamma, 0)
    return c._replace(alpha=alpha, beta=torch.where(mask, c.beta, 1), gamma=gamma)


def forget_at(c: Coefficients, reset: Tensor, like: Tensor) -> Coefficients:
    """The member under resets (..., n), True where a new document begins: there α = β = δ = 0."""
    keep = ~reset
    alpha = keep.to(like.dtype)[..., None] if c.alpha is None else torch.where(keep[..., None], c.alpha, 0)
    beta, delta = (None if x is None else torch.where(keep, x, 0) for x in (c.beta, c.delta))
    return c._replace(alpha=alpha, beta=beta, delta=delta)


def faded(x: Tensor, coefficient: Tensor) -> Tensor:
    """coefficient · x, for coefficients in [0, 1] that may have more digits than x.

    Near 1, a coefficient rounded to the dtype of x would lose the digits of 1 - coefficient, at every step anew.
    """
    if coefficient.dtype == x.dtype:
        return coefficient * x
    whole = (coefficient > 0.5).to(coefficient.dtype)
    return whole.to(x.dtype) * x + (coefficient - whole).to(x.dtype) * x


class Choice(NamedTuple):
    """What a coefficient may be: as a number or one a head, one a token, and the number that changes nothing."""

    allowed: Interval
    per_token: Interval | None = None
    neutral: float | None = None


MOMENTUM_ATTENTION = {"beta": Choice(MOMENTUM), "gamma": Choice(STEP_SIZE)}
FAMILY = {
    "alpha": Choice(SHARE, SHARE, 1.0),
    "beta": Choice(MOMENTUM, SHARE, 0.0),  # one a token may be 1, to which a sigmoid can round
    "gamma": Choice(FINITE, FINITE, 1.0),
    "eta": Choice(FINITE, FINITE, 1.0),
    "delta": Choice(FINITE, FINITE, 0.0),
    "lookahead": Choice(FINITE, FINITE, 0.0),
}


def member(
    q: Tensor, choices: dict[str, Choice], values: dict[str, float | Tensor], *, width: int = 0
) -> tuple[Coefficients, tuple[float, ...] | None]:
    """The coefficients of a call with queries q (b, h, n, d), checked; and as a tuple, where all are plain numbers.

    `width` is that of the features, for an alpha for each.
    """
    for name, value in values.items():
        if isinstance(value, Tensor):
            return _member(q, choices, values, width), None
        if type(value) is not float:
            check_number(name, value, choices[name].allowed)
    numbers = tuple(map(float, values.values()))
    return memo((*numbers, len(choices), q.device), partial(_member, q, choices, values, width)), numbers


def _member(q: Tensor, choices: dict[str, Choice], values: dict[str, float | Tensor], width: int) -> Coefficients:
    found = {name: _coefficient(name, value, q, choices[name], width) for name, value in values.items()}
    if found.get("lookahead") is not None and found["beta"] is None:  # the last update is an m
        found["beta"] = torch.zeros(1, dtype=_exact(q), device=q.device)
    per_head = [x for x in found.values() if x is not None and x.ndim == 1]
    lead = max([x.shape[0] for x in per_head]) if per_head else 1
    return Coefficients(**{name: x.expand(lead) if x is not None and x.ndim == 1 else x for name, x in found.items()})


def _exact(q: Tensor) -> torch.dtype:
    return torch.float32 if q.device.type == "mps" else torch.float64


def _coefficient(name: str, value: float | Tensor, q: Tensor, choice: Choice, width: int) -> Tensor | None:
    if not isinstance(value, Tensor):
        if type(value) is float and value == choice.neutral:
            return None
        check_number(name, value, choice.allowed)
        if float(value) == choice.neutral:
            return None
        return torch.tensor([float(value)], dtype=_exact(q), device=q.device)
    b, h, n, _ = q.shape
    shapes: tuple[tuple[int, ...], ...] = ((h,),)
    if choice.per_token is not None:
        shapes = ((h,), (b, h, n), (b, h, n, width)) if name == "alpha" else ((h,), (b, h, n))
    one_a_token = value.ndim > 1 and choice.per_token is not None
    allowed = choice.per_token if one_a_token and choice.per_token is not None else choice.allowed
    check_coefficient(name, value, shapes, q.device, allowed)
    if not one_a_token:
        return value.reshape(-1).to(_exact(q))
    wide = wide_dtype(q)
    return value if value.dtype == wide else value.to(wide)

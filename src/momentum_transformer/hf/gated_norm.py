"""The gated norm behind a mixer, `...RMSNormGated` of each architecture: norm, weight and gate in one pass."""

from typing import Any

from torch import Tensor

from ..backend.cpu.cached_step_operator import serves
from ..backend.cpu.row_norm_operator import few_rows
from ..backend.surroundings import norm_and_gate
from ..ops.shapes import Float

FEW = 2**15  # elements, of a token or some


def norm_then_gate(
    norm: Any, hidden_states: Float[Tensor, "... d"], gate: Float[Tensor, "... d"] | None = None
) -> Float[Tensor, "... d"]:
    """Behind a delta rule: heads are normed, weighted, and multiplied by the norm's activation of the gate."""
    return _rows(norm, hidden_states, gate, norm.weight, gating=norm.activation)


def gate_then_norm(
    norm: Any, hidden_states: Float[Tensor, "... d"], gate: Float[Tensor, "... d"] | None = None
) -> Float[Tensor, "... d"]:
    """Behind Mamba-2's recurrence: x · SiLU(gate) is normed, in groups or as a whole, and weighted."""
    width = hidden_states.shape[-1]
    groups = width // getattr(norm, "group_size", width)
    if groups == 1:
        return _rows(norm, hidden_states, gate, norm.weight, gating="silu first")
    x = hidden_states.unflatten(-1, (groups, -1))
    gate = None if gate is None else gate.unflatten(-1, (groups, -1))
    return norm.weight * _rows(norm, x, gate, None, gating="silu first").flatten(-2)


def _rows(norm: Any, x: Tensor, gate: Tensor | None, weight: Tensor | None, *, gating: str) -> Tensor:
    """Norm and gate of rows (b, n, h, d), or with fewer axes, of which the last but one is that of tokens."""
    if x.numel() <= FEW and serves(x, weight, gate):
        return few_rows(x, weight, gate, eps=norm.variance_epsilon, gating=gating)
    gate = None if gate is None else _four(gate)
    y = norm_and_gate(_four(x), weight, gate, eps=norm.variance_epsilon, gating=gating)
    return y.transpose(1, 2) if x.ndim == 4 else y.reshape(x.shape)


def _four(x: Tensor) -> Tensor:
    if x.ndim == 4:
        return x.transpose(1, 2)
    return x[:, None] if x.ndim == 3 else x[None, None]

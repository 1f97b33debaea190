"""Wrong input: a ValueError that names the argument, what was given, what is allowed."""

from typing import Any

import pytest
import torch

from momentum_transformer import (
    MomentumState,
    RecurrentState,
    cu_seqlens,
    linear_attention,
    momentum_attention,
    recurrent_attention,
    softmax_attention,
)
from momentum_transformer.ops.state import CacheState, LinearState

X = torch.randn(2, 3, 8, 4)
STATE = MomentumState(torch.zeros(2, 3, 4, 4), torch.zeros(2, 3, 4, 4), torch.zeros(2, 3, 4))


def state(**changes: torch.Tensor) -> MomentumState:
    return STATE._replace(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beta": 1.0}, r"beta must be in \[0, 1\), not 1.0"),
        ({"beta": -0.1}, r"beta must be in \[0, 1\), not -0.1"),
        ({"beta": float("nan")}, r"beta must be in \[0, 1\), not nan"),
        ({"beta": torch.tensor([0.1, 0.2, 1.5])}, r"beta must be in \[0, 1\), not \[0.1.*1.5\]"),
        ({"beta": torch.tensor([0.1, 0.2])}, r"beta must be a number or have shape \(3,\), not \(2,\)"),
        ({"beta": torch.tensor([0, 0, 0])}, "beta must have a floating-point dtype, not torch.int64"),
        ({"beta": torch.zeros(3, device="meta")}, "beta must be on cpu, the device of q, not meta"),
        ({"beta": "0.5"}, "beta must be a number, not str"),
        ({"gamma": 0.0}, "gamma must be positive and finite, not 0.0"),
        ({"gamma": -1}, "gamma must be positive and finite, not -1"),
        ({"gamma": torch.tensor([1.0, 0.0, 1.0])}, r"gamma must be positive and finite, not \[1.0, 0.0, 1.0\]"),
        ({"q": X[0]}, r"q must have 4 axes \(batch, heads, length, width\), not shape \(3, 8, 4\)"),
        ({"q": X.long()}, "q must have a floating-point dtype, not torch.int64"),
        ({"q": [1.0]}, "q must be a tensor, not list"),
        ({"k": X.double()}, "k must have the dtype of q, torch.float32, not torch.float64"),
        ({"v": X.to("meta")}, "v must be on the device of q, cpu, not meta"),
        ({"k": X[:1]}, r"k must have shape \(2, 3, m, 4\) to match q .*, not \(1, 3, 8, 4\)"),
        ({"k": X[..., :2]}, r"k must have shape \(2, 3, m, 4\)"),
        ({"v": X[:, :, :5]}, r"v must have shape \(2, 3, 8, e\) to match k .*, not \(2, 3, 5, 4\)"),
        ({"k": X[:, :, :5], "v": X[:, :, :5]}, "causal attention needs as many keys as queries.*causal=False"),
        ({"key_mask": torch.ones(2, 8)}, "key_mask must be a bool tensor .*, not torch.float32"),
        ({"key_mask": torch.ones(2, 7).bool()}, r"key_mask must have shape \(2, 8\), not \(2, 7\)"),
        ({"key_mask": torch.ones(2, 8, device="meta").bool()}, "key_mask must be on cpu"),
        ({"query_mask": torch.ones(3, 8).bool()}, r"query_mask must have shape \(2, 8\), not \(3, 8\)"),
        ({"weighting": "absolute"}, "weighting must be one of 'relative', 'terminal', not 'absolute'"),
        ({"backend": "cuda"}, "backend must be one of 'auto', .*'native', .*, not 'cuda'"),
        ({"chunk_size": 0}, "chunk_size must be a positive whole number or None, not 0"),
        ({"chunk_size": 2.5}, "chunk_size must be a positive whole number or None, not 2.5"),
        ({"chunk_size": True}, "chunk_size must be a positive whole number or None, not True"),
        ({"eps": -1e-6}, "eps must not be negative, not -1e-06"),
        ({"eps": float("nan")}, "eps must not be negative, not nan"),
        ({"eps": float("inf")}, "eps must be finite, not inf"),
        ({"eps": "1"}, "eps must be a number, not str"),
        ({"q": X.to(torch.float8_e4m3fn)}, "q must have 16 bits a number or more, not torch.float8_e4m3fn"),
        ({"causal": False, "return_state": True}, "need causal=True"),
        ({"state": state(s=STATE.s[:1])}, r"state.s must have shape \(2, 3, 4, 4\) .*, not \(1, 3, 4, 4\)"),
        ({"state": state(z=STATE.z.bfloat16())}, "state.z must be float32 or float64, not torch.bfloat16"),
        ({"state": state(m=STATE.m.to("meta"))}, "state.m must be on cpu, the device of q, not meta"),
        ({"state": MomentumState(None, None, None)}, "state.m must be a tensor, not NoneType"),
        ({"state": LinearState(STATE.s, STATE.z)}, "state must be a MomentumState, not LinearState"),
    ],
)
def test_momentum_attention_says_what_is_wrong(changes: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"q": X, "k": X, "v": X, "beta": 0.5} | changes
    with pytest.raises(ValueError, match=message):
        momentum_attention(**arguments)


def test_linear_and_softmax_attention_say_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="q must have 4 axes"):
        linear_attention(X[0], X, X)
    with pytest.raises(ValueError, match="state must be a LinearState, not tuple"):
        linear_attention(X, X, X, state=(1, 2))
    with pytest.raises(ValueError, match="key_mask must have shape"):
        softmax_attention(X, X, X, key_mask=torch.ones(1, 1).bool())
    with pytest.raises(ValueError, match="state must be a CacheState, not MomentumState"):
        softmax_attention(X, X, X, state=STATE)
    cache = CacheState(X[:1], X[:1], torch.ones(1, 8).bool())
    with pytest.raises(ValueError, match=r"state.k must have shape \(2, 3, 8, 4\)"):
        softmax_attention(X, X, X, state=cache)
    with pytest.raises(ValueError, match=r"state.mask must have shape \(2, 8\)"):
        softmax_attention(X, X, X, state=CacheState(X, X, torch.ones(2, 7).bool()))
    with pytest.raises(ValueError, match=r"dropout must be in \[0, 1\), not 2.0"):
        softmax_attention(X, X, X, dropout=2.0)
    with pytest.raises(ValueError, match="need causal=True"):
        softmax_attention(X, X, X, causal=False, return_state=True)


S, Z, TOKEN = torch.zeros(2, 3, 4, 4), torch.zeros(2, 3, 4), torch.full((2, 3, 8), 0.5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"alpha": 1.5}, r"alpha must be in \[0, 1\], not 1.5"),
        ({"alpha": TOKEN - 1}, r"alpha must be in \[0, 1\], not -0.5"),
        ({"alpha": float("nan")}, r"alpha must be in \[0, 1\], not nan"),
        (
            {"alpha": torch.ones(3, 8)},
            r"alpha must be a number or have shape \(3,\), \(2, 3, 8\) or \(2, 3, 8, 4\), not",
        ),
        ({"beta": 1.0}, r"beta must be in \[0, 1\), not 1.0"),
        ({"beta": torch.tensor([0.1, 0.2, 1.0])}, r"beta must be in \[0, 1\), not \[0.1.*1.0\]"),
        ({"beta": TOKEN + 1}, r"beta must be in \[0, 1\], not 1.5"),
        (
            {"beta": torch.ones(2, 3, 8, 4)},
            r"beta must be a number or have shape \(3,\) or \(2, 3, 8\), not \(2, 3, 8, 4\)",
        ),
        ({"gamma": float("inf")}, "gamma must be finite, not inf"),
        ({"eta": torch.tensor([1.0, 2.0])}, r"eta must be a number or have shape \(3,\) or \(2, 3, 8\), not \(2,\)"),
        ({"eta": TOKEN.long()}, "eta must have a floating-point dtype, not torch.int64"),
        ({"delta": True}, "delta must be a number, not bool"),
        ({"delta": TOKEN.to("meta")}, "delta must be on cpu, the device of q, not meta"),
        ({"lookahead": "0.5"}, "lookahead must be a number, not str"),
        ({"erase": X[..., :2]}, r"erase must have the shape of k, \(2, 3, 8, 4\), not \(2, 3, 8, 2\)"),
        ({"erase": X.double()}, "erase must be torch.float32 on cpu like k, not torch.float64"),
        ({"erase": 1.0}, "erase must be a tensor, not float"),
        ({"reset": torch.ones(2, 7).bool()}, r"reset must have shape \(2, 8\), not \(2, 7\)"),
        ({"reset": torch.ones(2, 8)}, r"reset must be a bool tensor \(True = a document begins\), not torch.float32"),
        ({"key_mask": torch.ones(1, 8).bool()}, r"key_mask must have shape \(2, 8\), not \(1, 8\)"),
        ({"k": X[:, :2]}, "k must have as many heads as v, 3, or a divisor of them that q and k share, not 2"),
        ({"q": X[:, :1]}, "q must have as many heads as v, 3, or a divisor of them that q and k share, not 1"),
        ({"v": X[:, :0]}, "q must have as many heads as v, 0, or a divisor of them that q and k share, not 3"),
        ({"k": X[:, :0]}, "must have as many heads as v, 3, or a divisor of them that q and k share"),
        ({"k": X[:, :1, :5]}, "causal attention needs as many keys as queries|must have shape"),
        ({"state": RecurrentState(S, S)}, "state.m must be None: this member has no m, so the state is another's"),
        ({"state": RecurrentState(S, None, Z)}, "state.z must be None: this member has no z"),
        ({"state": RecurrentState(S), "beta": 0.5}, "state.m must be a tensor, not NoneType"),
        ({"state": RecurrentState(S), "normalize": True}, "state.z must be a tensor, not NoneType"),
        ({"state": RecurrentState(S[:1])}, r"state.s must have shape \(2, 3, 4, 4\) .*, not \(1, 3, 4, 4\)"),
        ({"state": STATE}, "state must be a RecurrentState, not MomentumState"),
        ({"backend": "quadratic", "eta": 0.5}, 'backend="quadratic" cannot be used: .*not eta'),
    ],
)
def test_recurrent_attention_says_what_is_wrong(changes: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"q": X, "k": X, "v": X} | changes
    with pytest.raises(ValueError, match=message):
        recurrent_attention(**arguments)


@pytest.mark.parametrize(
    ("boundaries", "n", "message"),
    [
        ([0, 5], None, "takes a tensor of whole numbers"),
        (torch.tensor([0.0, 5.0]), None, "takes a tensor of whole numbers"),
        (torch.tensor([1, 5]), None, r"must rise from 0 to at most 5, not \[1, 5\]"),
        (torch.tensor([0, 7, 5]), None, "must rise from 0"),
        (torch.tensor([0, 9]), 8, "must rise from 0 to at most 8"),
        (torch.tensor([0, 9]), "9", "n must be a whole number of tokens, not '9'"),
    ],
)
def test_boundaries_that_do_not_fit_are_refused(boundaries: Any, n: int | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cu_seqlens(boundaries, n)


def test_boundaries_become_resets() -> None:
    assert cu_seqlens(torch.tensor([0, 2, 2, 5])).tolist() == [[True, False, True, False, False]]
    assert cu_seqlens(torch.tensor([0, 2]), 4).tolist() == [[True, False, True, False]]

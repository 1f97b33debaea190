"""Adapters: each peer's own causal attention as a function of our tensors; of linear attention with φ = elu + 1.

A peer is imported when it is asked for, and only then. None is needed for anything else.
"""

import importlib.util
import inspect
import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (the field's name for it)

from ..ops.feature_maps import elu_plus_one
from ..ops.shapes import Tensor

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
FLA_CHUNK = 64


def fast_transformers() -> Attend:
    """The C++ loop of pytorch-fast-transformers, through its module, with its own elu + 1."""
    layers: Any = _quiet_import("fast_transformers.attention.causal_linear_attention")
    masks: Any = _quiet_import("fast_transformers.masking")

    @cache  # as a model would: the masks of a batch serve all of its layers
    def prepared(b: int, n: int, d: int) -> tuple[Any, Any, Any]:
        lengths = masks.LengthMask(torch.full((b,), n, dtype=torch.long))
        return layers.CausalLinearAttention(d), masks.TriangularCausalMask(n), lengths

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        b, _, n, d = q.shape
        layer, causal, lengths = prepared(b, n, d)
        y: Tensor = layer(*(x.transpose(1, 2) for x in (q, k, v)), causal, lengths, lengths)
        return y.transpose(1, 2)

    return attend


def fla_recurrent() -> Attend:
    """flash-linear-attention's reference, token by token; it works in float32."""
    reference = _fla_references().naive_recurrent_linear_attn

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (x.transpose(1, 2) for x in (elu_plus_one(q), elu_plus_one(k), v))
        y: Tensor = reference(q, k, v, scale=1.0, normalize=True)[0]
        return y.transpose(1, 2)

    return attend


def fla_chunk() -> Attend:
    """flash-linear-attention's chunked reference, for lengths that are multiples of its chunk."""
    reference = _fla_references().naive_chunk_linear_attn

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        n = q.shape[2]
        # features of zero after the end are seen by no earlier query
        q, k, v = (F.pad(x, (0, 0, 0, -n % FLA_CHUNK)).transpose(1, 2) for x in (elu_plus_one(q), elu_plus_one(k), v))
        y: Tensor = reference(q, k, v, scale=1.0, normalize=True)
        return y.transpose(1, 2)[:, :, :n]

    return attend


def linear_attention_transformer() -> Attend:
    """Its causal form without blind spot. It maps q by softmax and k by exp, so it is fed logarithms of φ."""
    peer: Any = _quiet_import("linear_attention_transformer.linear_attention_transformer")

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        y: Tensor = peer.causal_linear_attn(elu_plus_one(q).log(), elu_plus_one(k).log(), v, bucket_size=1, eps=0)
        return y

    return attend


def for_transformers(
    q: Tensor, k: Tensor, v: Tensor, alpha: Tensor, eta: Tensor, *state: Tensor
) -> tuple[Tensor, ...]:
    """(b, n, h, …) as Transformers takes it, with the logarithm of α, and q times √d, by which it divides."""
    own = (q * q.shape[-1] ** 0.5, k, v, alpha.log(), eta)
    return *(x.transpose(1, 2) for x in own), *state


def transformers_gated_delta() -> Callable[..., Tensor]:
    """The chunked form of Qwen3-Next's layers in pure PyTorch; it works in float32."""
    return _transformers_chunked("qwen3_next", "torch_chunk_gated_delta_rule")


def transformers_kda() -> Callable[..., Tensor]:
    """The chunked form of Kimi Linear's layers in pure PyTorch; it works in float32."""
    return _transformers_chunked("kimi_linear", "chunk_kimi_delta_attention")


def transformers_one_token() -> Callable[..., tuple[Tensor, Tensor]]:
    """The token-by-token form that Qwen3-Next decodes with, and the state after it."""
    reference = _transformers("qwen3_next", "torch_recurrent_gated_delta_rule")

    def attend(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        *own, state = tensors
        y, after = reference(*own, initial_state=state, output_final_state=True)
        return y.transpose(1, 2), after

    return attend


def _transformers_chunked(model: str, name: str) -> Callable[..., Tensor]:
    reference = _transformers(model, name)

    def attend(*tensors: Tensor) -> Tensor:
        y: Tensor = reference(*tensors)[0]
        return y.transpose(1, 2)

    return attend


def _transformers(model: str, name: str) -> Any:
    """The function itself: what Transformers wraps around it may call other packages, which need a GPU."""
    module = _quiet_import(f"transformers.models.{model}.modeling_{model}")
    function = getattr(module, name, None)
    if function is None:
        raise ImportError(f"this version of transformers has no {name}")
    return inspect.unwrap(function)


def _quiet_import(name: str) -> ModuleType:
    """What a peer warns about while it loads is not for our users."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_module(name)


def _fla_references() -> Any:
    """The one file of pure-torch references: the package around it does not import without a GPU compiler."""
    package = importlib.util.find_spec("fla")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("No module named 'fla'", name="fla")
    path = Path(package.submodule_search_locations[0]) / "ops" / "linear_attn" / "naive.py"
    specification = importlib.util.spec_from_file_location("fla_references", path)
    if specification is None or specification.loader is None or not path.exists():
        raise ImportError(f"there is no {path}")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module

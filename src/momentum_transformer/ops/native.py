"""The native form: which attentions it serves, its call, and its gradients."""

from typing import Any

import torch
from torch.autograd import forward_ad

from ..kernels import causal, step, unordered  # noqa: F401  # registers the operators
from ..kernels.causal import sums_segments as sums_segments
from ..kernels.library import Missing, native
from .eager import eager
from .feature_maps import elu_plus_one
from .recurrences import CHUNK_SIZE, Linear, Momentum, Recurrence, run_causal
from .shapes import Tensor

SHORT = 1024  # tokens, which one thread is through with before others have begun


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def status() -> str | None:
    """Why the native kernels are not there; None where they are."""
    found = native()
    return found.reason if isinstance(found, Missing) else None


def native_refusal(q: Tensor, v: Tensor, *, key_mask: Tensor | None, query_mask: Tensor | None) -> str | None:
    """Why this attention is not one for the native form; None where it is."""
    if q.device.type != "cpu":
        return f"it runs on the CPU, and q is on {q.device}"
    if q.dtype not in causal.DTYPES:
        return f"it knows {', '.join(str(dtype) for dtype in causal.DTYPES)}, not {q.dtype}"
    if q.numel() == 0 or v.numel() == 0:
        return "an empty tensor has no rows to point at"
    if torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0:
        return "it knows neither forward-mode derivatives nor the transforms of torch.func"
    if query_mask is not key_mask:
        return "it takes queries and keys for the same tokens, and query_mask differs from key_mask"
    return status()


def attend_native(
    recurrence: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    state: Any,
    *,
    mask: Tensor | None,
    elu: bool,
    normalize: bool,
    eps: float,
    return_state: bool,
    wide: torch.dtype,
) -> tuple[Tensor, Any]:
    """y (b, h, n, e) and the state after the last token, if asked for; q, k are features, or what elu + 1 maps."""
    if q.shape[2] == 1 and mask is None and return_state and not _needs_gradients(recurrence, q, k, v, state):
        return _one_token(recurrence, q.to(wide), k.to(wide), v.to(wide), state, elu=elu, normalize=normalize, eps=eps)
    rows = count = None
    if mask is not None:
        rows = torch.argsort(~mask, dim=-1, stable=True).int().contiguous()
        count = mask.sum(-1, dtype=torch.int32)
    s, z = (None, None) if state is None else (recurrence.pack(state), state.z)
    tensors: tuple[Any, ...] = (q, k, v, s, z, *_coefficients(recurrence))
    others: tuple[Any, ...] = (rows, count, elu, normalize, eps, return_state)
    # PyTorch's way to an operator and its gradients is long; what nobody traces takes a short cut
    if not eager(*tensors):
        output = torch.ops.momentum.causal(*tensors, *others)
    elif _needs_gradients(recurrence, q, k, v, state):
        output = _Causal.apply(*tensors, others)
    else:
        output = causal.forward(*tensors, *others, keep=False)  # type: ignore[misc]  # none of them is `keep`
    y, _, _, s_after, z_after = output
    return y, recurrence.unpack(s_after, z_after) if return_state else None


def attend_unordered(
    recurrence: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    key_mask: Tensor | None,
    query_mask: Tensor | None,
    elu: bool,
    normalize: bool,
    eps: float,
    wide: torch.dtype,
) -> Tensor | None:
    """Attention without causal order, where nobody asks for gradients; None where PyTorch serves it as well."""
    if not eager(q, k, v) or _needs_gradients(recurrence, q, k, v, None):
        return None
    sequences, tokens = q.shape[0] * q.shape[1], q.shape[2] + k.shape[2]
    if 2 * sequences < torch.get_num_threads() and tokens > SHORT:  # a sequence has one thread, worth two of PyTorch's
        return None
    if native_refusal(q, v, key_mask=None, query_mask=None) is not None:
        return None
    by_age = recurrence.by_age(k.shape[2], wide)
    return unordered.forward(
        q, k, v, by_age, key_mask=key_mask, query_mask=query_mask, elu=elu, normalize=normalize, eps=eps
    )


def _one_token(
    recurrence: Any, q: Tensor, k: Tensor, v: Tensor, state: Any, *, elu: bool, normalize: bool, eps: float
) -> tuple[Tensor, Any]:
    if state is None:
        (b, h, _, d), e = q.shape, v.shape[-1]
        state = recurrence.unpack(
            v.new_zeros(b, h, len(recurrence.state_type._fields) - 1, d, e), v.new_zeros(b, h, d)
        )
    m, (beta, gamma) = getattr(state, "m", None), _coefficients(recurrence)
    y, m_after, s_after, z_after = torch.ops.momentum.step(
        q[:, :, 0], k[:, :, 0], v[:, :, 0], m, state.s, state.z, beta, gamma, elu, normalize, eps
    )
    parts = {"m": m_after, "s": s_after, "z": z_after}
    return y[:, :, None], recurrence.state_type(**{name: parts[name] for name in recurrence.state_type._fields})


def _coefficients(recurrence: Any) -> tuple[Tensor | None, Tensor | None]:
    """β and γ, which linear attention has not."""
    if isinstance(recurrence, Momentum):
        return recurrence.beta.contiguous(), recurrence.gamma.contiguous()
    return None, None


def _needs_gradients(recurrence: Any, *inputs: Any) -> bool:
    if not torch.is_grad_enabled():
        return False
    tensors = [*inputs[:3], *(inputs[3] or ()), *(getattr(recurrence, name, None) for name in ("beta", "gamma"))]
    return any(x.requires_grad for x in tensors if x is not None)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, elu, normalize, eps, ctx.return_state = inputs
    y, denominator, prefix, _, _ = output
    ctx.options = (elu, normalize, eps)
    ctx.mark_non_differentiable(denominator, prefix)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, y, denominator, prefix)


def _backward(ctx: Any, dy: Tensor | None, *others: Tensor | None) -> tuple[Tensor | None, ...]:
    q, k, v, s, z, beta, gamma, rows, count, y, denominator, prefix = ctx.saved_tensors
    _, _, ds_after, dz_after = others if ctx.return_state else (None,) * 4
    nothing = (None,) * 6
    if dy is None and ds_after is None and dz_after is None:
        return (None,) * 7 + nothing
    if torch.is_grad_enabled():
        return *_differentiable(ctx, dy, ds_after, dz_after), *nothing
    if dy is None:
        dy = torch.zeros_like(y)
    if (ds_after is None) != (dz_after is None):
        (b, h, _, d), lanes = q.shape, 1 if beta is None else 2
        ds_after = denominator.new_zeros(b, h, lanes, d, v.shape[-1]) if ds_after is None else ds_after
        dz_after = denominator.new_zeros(b, h, d) if dz_after is None else dz_after
    learned = any(ctx.needs_input_grad[5:7])
    call: Any = causal.backward if eager(dy, ds_after, dz_after, q, k, v) else torch.ops.momentum.causal_backward
    state, coefficients = (s, z, y, denominator, prefix), (beta, gamma, rows, count)
    dq, dk, dv, ds, dz, d_coefficients = call(
        dy, ds_after, dz_after, q, k, v, *state, *coefficients, *ctx.options, learned
    )
    d_beta = d_gamma = None
    if learned:
        per_head = d_coefficients.sum(0) if beta.shape[0] > 1 else d_coefficients.sum((0, 1))[None]
        d_beta, d_gamma = per_head.unbind(-1)
    return dq, dk, dv, *((None, None) if s is None else (ds, dz)), d_beta, d_gamma, *nothing


class _Causal(torch.autograd.Function):
    """`momentum::causal` without the dispatcher."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, ...]:
        inputs = (*inputs[:-1], *inputs[-1])
        output = causal.forward(*inputs)
        _setup_context(ctx, inputs, output)
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        return *_backward(ctx, *grads)[:7], None


def _differentiable(
    ctx: Any, dy: Tensor | None, ds_after: Tensor | None, dz_after: Tensor | None
) -> tuple[Tensor | None, ...]:
    """The same gradients by the chunked form in PyTorch, which can be differentiated again."""
    inputs = ctx.saved_tensors[:7]
    wanted = [x is not None and needed for x, needed in zip(inputs, ctx.needs_input_grad, strict=False)]
    asked = [x for x, needed in zip(inputs, wanted, strict=True) if needed]
    outputs = in_pytorch(*ctx.saved_tensors[:9], *ctx.options)
    pairs = [(out, d) for out, d in zip(outputs, (dy, ds_after, dz_after), strict=True) if d is not None]
    outs, grads = zip(*pairs, strict=True)
    found = iter(torch.autograd.grad(outs, asked, grads, create_graph=True, allow_unused=True))
    return tuple(next(found) if needed else None for needed in wanted)


def in_pytorch(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s: Tensor | None,
    z: Tensor | None,
    beta: Tensor | None,
    gamma: Tensor | None,
    rows: Tensor | None,
    count: Tensor | None,
    elu: bool,
    normalize: bool,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """What `momentum::causal` computes, without it: y and the state after the last token."""
    narrow, n = q.dtype, q.shape[2]
    wide = torch.promote_types(narrow, torch.float32)
    q, k, v = q.to(wide), k.to(wide), v.to(wide)
    recurrence: Recurrence = Linear() if beta is None or gamma is None else Momentum(beta, gamma)
    if s is None or z is None:
        (b, h, _, d), e, lanes = q.shape, v.shape[-1], len(recurrence.state_type._fields) - 1
        s, z = q.new_zeros(b, h, lanes, d, e), q.new_zeros(b, h, d)
    mask = None
    if rows is not None and count is not None:
        mask = torch.zeros_like(rows, dtype=torch.bool).scatter(
            1, rows.long(), torch.arange(n, device=rows.device) < count[:, None]
        )
        q, k, v = (torch.where(mask[:, None, :, None], x, 0) for x in (q, k, v))
    numerator, denominator, after = run_causal(
        recurrence,
        q,
        k,
        v,
        recurrence.unpack(s, z),
        feature_map=elu_plus_one if elu else None,
        mask=None if mask is None else mask[:, None],
        backend="chunked",
        chunk_size=CHUNK_SIZE,
        return_state=True,
    )
    y = numerator / (denominator + eps)[..., None] if normalize else numerator
    if mask is not None:
        y = torch.where(mask[:, None, :, None], y, 0)
    return y.to(narrow), recurrence.pack(after), after.z


torch.library.register_autograd("momentum::causal", _backward, setup_context=_setup_context)

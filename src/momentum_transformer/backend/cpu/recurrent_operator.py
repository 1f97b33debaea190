"""Every member of the family as PyTorch operators: `momentum::recurrent` and its backward pass.

Autograd belongs to `recurrent_autograd.py`. q, k, v and `erase` are (b, h, n, d) on the CPU, in one of DTYPES. A
coefficient is None where it is neutral, (1,) or (h,) in float64, or (b, h, n) in the dtype of the computation, float32
or float64 like q; alpha also (b, h, n, d). A state is (b, h, planes, d, e), and (b, h, d) with a denominator.
"""

from typing import Any

import torch
from torch import Tensor

from .causal_operator import DTYPES, run, wide_dtype
from .library import Coefficient, CoefficientGradient, FamilyProblem, TensorView, contiguous_rows, empty_rows, pointer
from .operator_checks import check_indices, check_no_tangent
from .recurrent_checks import check_inputs, check_saved, planes_of

BLOCK = 32  # tokens, as in native/sequence.h

_LIST = "Tensor? erase, Tensor? alpha, Tensor? beta, Tensor? gamma, Tensor? eta, Tensor? delta, Tensor? lookahead"
_INPUTS = f"Tensor q, Tensor k, Tensor v, {_LIST}, Tensor? s, Tensor? z"
_TOKENS = "Tensor? reset, Tensor? token_index, Tensor? token_count"
_OPTIONS = "bool elu, bool normalize, float eps"
_SAVED = "Tensor denominator, Tensor predictions, Tensor prefix"
_library = torch.library.Library("momentum", "FRAGMENT")
_library.define(
    f"recurrent({_INPUTS}, {_TOKENS}, {_OPTIONS}, bool return_state) -> "
    f"(Tensor y, {_SAVED}, Tensor s_after, Tensor z_after)"
)
_library.define(
    f"recurrent_backward(Tensor dy, Tensor? ds_after, Tensor? dz_after, {_INPUTS}, {_TOKENS}, Tensor y, {_SAVED}, "
    f"{_OPTIONS}, bool[] learned) -> (Tensor dq, Tensor dk, Tensor dv, Tensor d_erase, Tensor d_alpha, Tensor d_beta, "
    "Tensor d_gamma, Tensor d_eta, Tensor d_delta, Tensor d_lookahead, Tensor ds, Tensor dz)"
)
INPUTS = 12  # q, k, v, erase, six coefficients, s, z: what may need gradients
TOKENS = 3  # reset, token_index, token_count


def segment(e: int, planes: int) -> int:
    """Tokens between two states that are saved for the backward pass: saved states take no more memory than k."""
    return min(max(-(-planes * e // BLOCK) * BLOCK, BLOCK), 8 * BLOCK)


def _contiguous(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """q, k, v and erase with contiguous rows, everything else contiguous."""
    rows = (None if x is None else contiguous_rows(x) for x in inputs[:4])
    return *rows, *(None if x is None else x.contiguous() for x in inputs[4:])


def _problem(
    inputs: tuple[Any, ...], tokens: tuple[Any, ...], *, elu: bool, normalize: bool, eps: float
) -> FamilyProblem:
    """The kernel's arguments, for contiguous inputs."""
    q, k, v, erase, *coefficients, s, z = inputs
    check_inputs(inputs, tokens, normalize)
    (b, h, n, d), e = q.shape, v.shape[-1]
    problem = FamilyProblem(b=b, h=h, n=n, d=d, e=e, elu=elu, normalize=normalize, eps=eps)
    problem.segment = segment(e, planes_of(coefficients[1]))
    problem.channels = coefficients[0] is not None and coefficients[0].ndim == 4
    # where nothing is erased and decays are slow s sums all tokens: without blocked summation it would lose digits
    problem.sum_segments = n > 1024 and coefficients[4] is None
    problem.threads, problem.dtype = torch.get_num_threads(), DTYPES.index(q.dtype)
    problem.q, problem.k, problem.v = TensorView.of(q), TensorView.of(k), TensorView.of(v)
    if erase is not None:
        problem.erase = TensorView.of(erase)
    problem.coefficient_heads = max([1, *(x.shape[0] for x in coefficients if x is not None and x.ndim == 1)])
    for i, x in enumerate(coefficients):
        if x is not None:
            problem.coefficients[i] = Coefficient(**{"heads" if x.ndim == 1 else "tokens": pointer(x)})
    problem.s, problem.z = pointer(s), pointer(z)
    problem.reset, problem.token_index, problem.token_count = map(pointer, tokens)
    return problem


def _outputs(
    inputs: tuple[Any, ...], tokens: tuple[Any, ...], *, normalize: bool, return_state: bool, keep: bool, traced: bool
) -> tuple[Tensor, ...]:
    q, _, v, _, _, beta, _, _, delta, *_ = inputs
    (b, h, n, d), e, wide, planes = q.shape, v.shape[-1], wide_dtype(q), planes_of(beta)
    parts = (n + segment(e, planes) - 1) // segment(e, planes)
    # in a trace n may be symbolic: no shape may depend on it but by arithmetic
    has_prefix = keep and (traced or parts > 1)
    return (
        empty_rows(v, tokens[1]),
        q.new_empty((b, h, n) if keep and normalize else (0,), dtype=wide),
        q.new_empty((b, h, n, e) if keep and delta is not None else (0,), dtype=wide),
        q.new_empty((b, h, parts * (planes * d * e + d)) if has_prefix else (0,), dtype=wide),
        q.new_empty((b, h, planes, d, e) if return_state else (0,), dtype=wide),
        q.new_empty((b, h, d) if return_state and normalize else (0,), dtype=wide),
    )


def forward(
    inputs: tuple[Any, ...],
    tokens: tuple[Any, ...],
    *,
    elu: bool,
    normalize: bool,
    eps: float,
    return_state: bool,
    keep: bool,
    traced: bool = False,
) -> tuple[Tensor, ...]:
    """`momentum::recurrent`.

    Args:
        inputs: q, k, v, erase, six coefficients, s, z.
        tokens: reset, token_index, token_count.
        keep: save what only the backward pass reads; otherwise it is empty.
        traced: give all results the shapes that a trace expects.
    """
    inputs, tokens = _contiguous(inputs), _contiguous((None,) * 4 + tokens)[4:]
    problem = _problem(inputs, tokens, elu=elu, normalize=normalize, eps=eps)
    outputs = _outputs(inputs, tokens, normalize=normalize, return_state=return_state, keep=keep, traced=traced)
    y, *others = outputs
    if traced:  # masked tokens and short sequences leave gaps, and an operator must not return uninitialized memory
        for x in others[:3]:
            x.zero_()
    problem.y = TensorView.of(y)
    problem.denominator, problem.predictions, problem.prefix, problem.s_after, problem.z_after = (
        x.data_ptr() if x.numel() else None for x in others
    )
    if inputs[0].shape[2] <= problem.segment:
        problem.prefix = None
    run("family_forward", problem, inputs[0].dtype)
    return outputs


def _gradients(
    inputs: tuple[Any, ...], tokens: tuple[Any, ...], learned: tuple[bool, ...], normalize: bool
) -> tuple[Tensor, ...]:
    q, k, v, erase, *coefficients, s, _ = inputs
    (b, h, _, d), wide, masked = q.shape, wide_dtype(q), tokens[1]
    nothing = q.new_empty((0,), dtype=wide)
    of_coefficients = []
    for x, wanted in zip(coefficients, learned, strict=True):
        if x is None or not wanted:
            of_coefficients.append(q.new_empty((0,), dtype=wide))
        elif x.ndim == 1:
            of_coefficients.append(q.new_empty((b, h), dtype=torch.float64))
        else:
            of_coefficients.append(x.new_empty(x.shape) if masked is None else x.new_zeros(x.shape))
    return (
        *(empty_rows(x, masked) for x in (q, k, v)),
        _of_erase(q, erase, coefficients[4], masked),
        *of_coefficients,
        nothing if s is None else q.new_empty(s.shape, dtype=wide),
        q.new_empty((b, h, d) if s is not None and normalize else (0,), dtype=wide),
    )


def _of_erase(q: Tensor, erase: Tensor | None, delta: Tensor | None, masked: Tensor | None) -> Tensor:
    """The gradient of `erase`: zeros without a delta."""
    if erase is None:
        return q.new_empty((0,))
    made = empty_rows(erase, masked)
    return made.zero_() if delta is None else made


def backward(
    grads: tuple[Any, ...],
    inputs: tuple[Any, ...],
    tokens: tuple[Any, ...],
    saved: tuple[Tensor, ...],
    *,
    elu: bool,
    normalize: bool,
    eps: float,
    learned: tuple[bool, ...],
) -> tuple[Tensor, ...]:
    """`momentum::recurrent_backward`: gradients of all inputs; empty where there is none or nobody asks for it.

    Args:
        grads: of y, s_after and z_after; the last two may be None.
        saved: y, denominator, predictions and prefix of the forward pass.
        learned: which coefficients get gradients; of one that is the same at all tokens, (b, h) parts of it.
    """
    inputs, tokens = _contiguous(inputs), _contiguous((None,) * 4 + tokens)[4:]
    problem = _problem(inputs, tokens, elu=elu, normalize=normalize, eps=eps)
    dy, y = contiguous_rows(grads[0]), contiguous_rows(saved[0])
    ds_after, dz_after = (None if x is None else x.contiguous() for x in grads[1:])
    check_saved((dy, ds_after, dz_after), inputs, (y, *saved[1:]), normalize=normalize, segment=problem.segment)
    problem.y, problem.dy = TensorView.of(y), TensorView.of(dy)
    problem.denominator, problem.predictions, problem.prefix = (x.data_ptr() if x.numel() else None for x in saved[1:])
    if inputs[0].shape[2] <= problem.segment:
        problem.prefix = None
    outputs = _gradients(inputs, tokens, learned, normalize)
    dq, dk, dv, d_erase, *d_coefficients, ds, dz = outputs
    problem.dq, problem.dk, problem.dv = TensorView.of(dq), TensorView.of(dk), TensorView.of(dv)
    if inputs[3] is not None and inputs[8] is not None:
        problem.d_erase = TensorView.of(d_erase)
    for i, (x, made) in enumerate(zip(inputs[4:10], d_coefficients, strict=True)):
        if made.numel():
            where = "heads" if x.ndim == 1 else "tokens"
            problem.d_family[i] = CoefficientGradient(**{where: made.data_ptr()})
    problem.ds, problem.dz = (x.data_ptr() if x.numel() else None for x in (ds, dz))
    problem.ds_after, problem.dz_after = pointer(ds_after), pointer(dz_after)
    run("family_backward", problem, inputs[0].dtype)
    return outputs


def _recurrent(*flat: Any) -> tuple[Tensor, ...]:
    inputs, tokens, (elu, normalize, eps, return_state) = flat[:INPUTS], flat[INPUTS:-4], flat[-4:]
    check_no_tangent(*inputs)
    check_indices(inputs[0], *tokens[1:])
    options = {"elu": elu, "normalize": normalize, "eps": eps, "return_state": return_state}
    return forward(inputs, tokens, **options, keep=True, traced=True)


def _recurrent_fake(*flat: Any) -> tuple[Tensor, ...]:
    inputs, tokens, (_, normalize, _, return_state) = flat[:INPUTS], flat[INPUTS:-4], flat[-4:]
    inputs = (*(None if x is None else contiguous_rows(x) for x in inputs[:4]), *inputs[4:])
    return _outputs(inputs, tokens, normalize=normalize, return_state=return_state, keep=True, traced=True)


def _split(flat: tuple[Any, ...]) -> tuple[tuple[Any, ...], ...]:
    """grads, inputs, tokens, saved and options of the backward operator."""
    ends = [3, 3 + INPUTS, 3 + INPUTS + TOKENS, 7 + INPUTS + TOKENS]
    return *(flat[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)), flat[ends[-1] :]


def _recurrent_backward(*flat: Any) -> tuple[Tensor, ...]:
    grads, inputs, tokens, saved, (elu, normalize, eps, learned) = _split(flat)
    check_indices(inputs[0], *tokens[1:])
    return backward(grads, inputs, tokens, saved, elu=elu, normalize=normalize, eps=eps, learned=tuple(learned))


def _recurrent_backward_fake(*flat: Any) -> tuple[Tensor, ...]:
    _, inputs, tokens, _, (_, normalize, _, learned) = _split(flat)
    inputs = (*(None if x is None else contiguous_rows(x) for x in inputs[:4]), *inputs[4:])
    return _gradients(inputs, tokens, tuple(learned), normalize)


for _name, _real, _fake in (
    ("recurrent", _recurrent, _recurrent_fake),
    ("recurrent_backward", _recurrent_backward, _recurrent_backward_fake),
):
    _library.impl(_name, _real, "CPU")
    torch.library.register_fake(f"momentum::{_name}", _fake)

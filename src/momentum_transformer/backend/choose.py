"""Which backend serves a call: the first that does not refuse."""

from typing import NamedTuple

from ..ops.checks import check_choice
from ..ops.shapes import Tensor
from ..ops.state import RecurrentState, map_state
from .call import Backend, Call
from .cpu.library import Missing, native
from .cpu.native_backend import NATIVE
from .cpu.native_bidirectional import NATIVE_BIDIRECTIONAL
from .pytorch import BIDIRECTIONAL, CHUNKED, QUADRATIC, RECURRENT

BackendName = str  # one of BACKEND_NAMES, which a call checks
# of causal calls, tried before the forms in PyTorch, which refuse nothing; docs/extending.md adds one
AHEAD: tuple[Backend, ...] = (NATIVE,)
BY_NAME: dict[str, Backend] = {x.name: x for x in (*AHEAD, CHUNKED, QUADRATIC, RECURRENT)}
BACKEND_NAMES = ("auto", *BY_NAME)


def candidates(call: Call, name: str) -> tuple[Backend, ...]:
    """The backends that this name allows for this call, the fastest first."""
    if not call.causal:
        return (NATIVE_BIDIRECTIONAL, BIDIRECTIONAL) if name in ("auto", "native") else (BIDIRECTIONAL,)
    if name != "auto":
        return (BY_NAME[name],)
    return (*AHEAD, RECURRENT if call.q.shape[2] == 1 else CHUNKED)


def serve(call: Call, name: BackendName) -> tuple[Tensor, RecurrentState | None]:
    """y and the state after the last token, by the first backend that does not refuse."""
    check_choice("backend", name, BACKEND_NAMES)
    if call.causal and call.q.shape[2] == 0:
        return _nothing(call)
    if name == "native" and not (call.q.numel() and call.v.numel()):
        name = "auto"  # there is nothing to compute
    reasons = []
    for backend in candidates(call, name):
        reason = backend.refusal(call)
        if reason is None:
            return backend.run(call)
        reasons.append(f'backend="{backend.name}" cannot be used: {reason}')
    raise ValueError(reasons[-1])


def _nothing(call: Call) -> tuple[Tensor, RecurrentState]:
    """No token: an empty output, tied to q, k and v so that each gets its (empty) gradient, and the same state."""
    x = call.features()
    state = map_state(Tensor.clone, call.before(x.k, x.v))
    nothing = (x.q.sum(-1) * x.k.sum(-1))[..., None]
    return (x.v * nothing).to(call.q.dtype), state


class BackendStatus(NamedTuple):
    name: str
    available: bool
    reason: str


def backends() -> tuple[BackendStatus, ...]:
    """Every backend of the causal front doors, the fastest first, with what it is or why it is not there.

    Returns:
        One (name, available, reason) each.

    Examples:
        >>> {"native", "chunked"} <= {status.name for status in backends()}
        True
    """
    found = native()
    if isinstance(found, Missing):
        first = BackendStatus("native", False, found.reason)
    else:
        first = BackendStatus("native", True, f"compiled code for {found.variant}; CPU tensors only")
    return (
        first,
        *(
            BackendStatus(one.name, True, (type(one).__doc__ or "").splitlines()[0])
            for one in AHEAD
            if one is not NATIVE
        ),
        BackendStatus("chunked", True, "PyTorch, linear time, any device, every member of the family"),
        BackendStatus("quadratic", True, "PyTorch, the paper's closed form; a reference"),
        BackendStatus("recurrent", True, "PyTorch, token by token; a reference"),
    )


def active_backend() -> str:
    """What `backend="auto"` runs on a CPU."""
    return next(status.name for status in backends() if status.available)

"""The border to native code: what operators are given, Ctrl-C, forks, and a damaged library."""

import ctypes
import ctypes.util
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

from momentum_transformer import momentum_attention
from momentum_transformer.backend.cpu import (  # noqa: F401 (they register operators)
    convolution_operator,
    native_call,
    row_norm_operator,
)
from momentum_transformer.backend.cpu.build import LIBRARY, SEAL, is_whole
from momentum_transformer.backend.cpu.library import Problem
from tests.family import needs_native

pytestmark = needs_native
OPS = torch.ops.momentum
B, H, N, D, E = 2, 3, 5, 4, 6


def rows(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.rand(shape, dtype=dtype)


def causal() -> list[Any]:
    index, count = torch.arange(N, dtype=torch.int32).repeat(B, 1), torch.full((B,), N, dtype=torch.int32)
    heads = torch.full((H,), 0.5, dtype=torch.float64)
    state = [rows(B, H, 2, D, E), rows(B, H, D)]
    inputs = [rows(B, H, N, D), rows(B, H, N, D), rows(B, H, N, E)]
    return [*inputs, *state, heads, heads.clone(), index, count, True, True, 1e-6, True]


def causal_backward() -> list[Any]:
    inputs = causal()
    y, denominator, prefix, s_after, z_after = OPS.causal(*inputs)
    return [rows(*y.shape), s_after, z_after, *inputs[:5], y, denominator, prefix, *inputs[5:12], True]


def recurrent() -> list[Any]:
    tokens = rows(B, H, N)
    c = [tokens, tokens.clone(), torch.ones(H, dtype=torch.float64), None, tokens.clone(), None]
    q, k, v, s, z, _, _, index, count, *_ = causal()
    return [q, k, v, k.clone(), *c, s, z, torch.zeros(B, N, dtype=torch.bool), index, count, False, True, 1e-6, True]


def recurrent_backward() -> list[Any]:
    inputs = recurrent()
    y, *saved, s_after, z_after = OPS.recurrent(*inputs)
    learned = [x is not None for x in inputs[4:10]]
    return [rows(*y.shape), s_after, z_after, *inputs[:15], y, *saved, *inputs[15:18], learned]


def bidirectional() -> list[Any]:
    q, k, v = rows(B, H, N, D), rows(B, H, N + 1, D), rows(B, H, N + 1, E)
    masks = [torch.ones(B, N + 1, dtype=torch.bool), torch.ones(B, N, dtype=torch.bool)]
    return [q, k, v, rows(H, N + 2), *masks, True, True, 1e-6]


def bidirectional_backward() -> list[Any]:
    inputs = bidirectional()
    y, denominator, s, z = OPS.bidirectional(*inputs)
    return [rows(*y.shape), *inputs[:4], y, denominator, s, z, *inputs[4:], True]


def step() -> list[Any]:
    q, k, v = rows(B, H, 1, D), rows(B, H, 1, D), rows(B, H, 1, E)
    tokens = rows(B, H, 1)
    c = [tokens, tokens.clone(), torch.ones(H, dtype=torch.float64), None, tokens.clone(), None]
    return [q, k, v, k.clone(), rows(B, H, D, E), rows(B, H, D, E), rows(B, H, D), *c, 1, True, 1e-6]


def short_convolution() -> list[Any]:
    mask = torch.ones(B, N, dtype=torch.bool)
    return [rows(B, N, D), rows(D, 4), rows(B, 3, D), rows(D), mask, ~mask, True, D]


def short_convolution_backward() -> list[Any]:
    inputs = short_convolution()
    y, after = OPS.short_convolution(*inputs)
    return [y, after, *inputs]


def row_norm() -> list[Any]:
    return [rows(B, H, N, D), rows(D), rows(B, H, N, D), True, 1e-6]


def row_norm_backward() -> list[Any]:
    return [rows(B, H, N, D), *row_norm()]


OPERATORS: dict[str, Callable[[], list[Any]]] = {
    made.__name__: made
    for made in (
        *(causal, causal_backward, recurrent, recurrent_backward, bidirectional, bidirectional_backward),
        *(step, short_convolution, short_convolution_backward, row_norm, row_norm_backward),
    )
}
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.int64, torch.bool, torch.complex64)


NUMBERS = (-1, 0, 3, 127, 2**31, 2**62, -(2**63), 1.5, float("nan"))


def spoiled(random: Random, x: Any) -> Any:
    """A tensor in another shape, dtype, layout, or with other numbers, or nothing; an option of another value."""
    if isinstance(x, list):
        return random.choice((x[:-1], x + x, [not one for one in x], []))
    if not isinstance(x, Tensor):
        return random.choice((None, not x, *NUMBERS))
    if not (x.ndim and x.numel()):
        return None
    match random.randrange(13):
        case 0:
            return x.to(random.choice(DTYPES))
        case 1:
            return x.narrow(axis := random.randrange(x.ndim), 0, x.shape[axis] - 1)
        case 2:
            return torch.cat([x, x], random.randrange(x.ndim))
        case 3:
            return x.unsqueeze(random.randrange(x.ndim + 1))
        case 4:
            return x.reshape(-1)
        case 5:
            return x.transpose(random.randrange(x.ndim), random.randrange(x.ndim))
        case 6:
            return x.new_empty(0)
        case 7:
            return x.narrow(0, 0, 1).expand(x.shape)
        case 8:
            return x.to("meta")
        case 9:
            return x.new_empty([random.choice((0, size)) for size in x.shape])
        case 10:
            return x.flip(random.randrange(x.ndim))
        case 11:
            return None
        case _:
            return torch.full_like(x, random.choice((-1, 1, 2**30, 127)))


@pytest.mark.parametrize("name", OPERATORS)
def test_good_arguments_are_served(name: str) -> None:
    results = getattr(OPS, name)(*OPERATORS[name]())
    assert all(x.isfinite().all() for x in (results if isinstance(results, tuple) else (results,)))


BORDER = """
import sys
from random import Random
import torch
from tests.backend.test_border import OPERATORS, OPS, spoiled
torch.manual_seed(0)
def served(name, cases):
    random = Random(name)
    return sum(serve(name, random) for case in range(cases))
def serve(name, random):
    arguments = OPERATORS[name]()
    for _ in range(random.choice((1, 1, 2))):
        place = random.choice([i for i, x in enumerate(arguments) if x is not None])
        arguments[place] = spoiled(random, arguments[place])
    try:
        getattr(OPS, name)(*arguments)
        return True
    except (ValueError, IndexError, RuntimeError, AttributeError, TypeError):  # the last two for a missing tensor
        return False
for name in OPERATORS:
    print(name, flush=True)
    print(served(name, int(sys.argv[1])), flush=True)
"""


def python(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    path = {"PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **path, **environment},
    )


# glibc's allocator notices what is written outside of tensors; since 2.34 its checks are a library of their own
CHECKS = ctypes.util.find_library("c_malloc_debug")
WATCHED = {"MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "165", **({"LD_PRELOAD": CHECKS} if CHECKS else {})}
if "ASAN_OPTIONS" in os.environ:  # the sanitizers notice more, and are in the place of the allocator
    WATCHED = {}
BEYOND = """
import ctypes, torch
x = torch.zeros(4)
ctypes.memset(x.data_ptr() + 16, 0, 1)
del x
"""


@pytest.mark.skipif(CHECKS is None, reason="the allocator has no such library")
def test_one_byte_beyond_a_tensor_is_noticed() -> None:
    assert python(BEYOND, **WATCHED).returncode == -signal.SIGABRT


def test_every_operator_is_spoiled() -> None:
    names = vars(torch._C)["_dispatch_get_all_op_names"]()
    assert {name for name in names if name.startswith("momentum::")} == {f"momentum::{name}" for name in OPERATORS}


@pytest.mark.kernels
def test_spoiled_arguments_are_refused_or_harmless() -> None:
    """In a process of its own, which would crash."""
    done = python(BORDER, "150", **WATCHED)
    words = done.stdout.split()
    assert (done.returncode, done.stderr) == (0, ""), words[-1:]
    assert words[::2] == list(OPERATORS)
    assert all(0 < int(served) < 150 for served in words[1::2])


@pytest.mark.parametrize(
    ("place", "change", "message"),
    [
        (7, lambda x: x + N, "token_index must be 0 to 4"),
        (7, lambda x: x - 1, "token_index must be 0 to 4"),
        (7, lambda x: x.long(), "token_index must be torch.int32"),
        (8, lambda x: x + 1, "token_count must be 0 to 5"),
        (8, lambda x: None, "come together"),
        (3, lambda x: x[:, :, :1], "s and z must be torch.float32"),
        (4, lambda x: None, "s and z come together"),
        (5, lambda x: x[:2], "of one shape"),
        (0, lambda x: x[:, :, :0], "do not fit"),
    ],
)
def test_causal_attention_names_what_is_wrong(place: int, change: Callable[[Tensor], Any], message: str) -> None:
    arguments = causal()
    arguments[place] = change(arguments[place])
    with pytest.raises(ValueError, match=message):
        OPS.causal(*arguments)


LONG_CALL = """
import os, signal, sys, threading, time
import torch
from momentum_transformer import momentum_attention, recurrent_attention
from momentum_transformer.backend.cpu.row_norm_operator import normalized
from momentum_transformer.backend.surroundings import short_convolution
torch.set_num_threads(1)
q = torch.rand(1, 2, 600_000, 64)
q.requires_grad_(sys.argv[1] == "backward")
call = lambda: momentum_attention(q, q, q, beta=0.5, backend="native")
if sys.argv[1] == "family":
    call = lambda: recurrent_attention(q, q, q, alpha=0.9, backend="native")
if sys.argv[1] == "bidirectional":
    call = lambda: momentum_attention(q, q, q, beta=0.5, causal=False, backend="native")
if sys.argv[1] == "norm":
    call = lambda: normalized(q, None, None, mean=True, eps=1e-5)
if sys.argv[1] == "convolution":
    call = lambda: short_convolution(q.flatten(0, 1), torch.rand(64, 4), silu=True)
if sys.argv[1] == "backward":
    y = call().sum()
    call = lambda: y.backward()
def press():
    time.sleep(0.3)
    pressed.append(time.perf_counter())
    os.kill(os.getpid(), signal.SIGINT)
pressed = []
threading.Thread(target=press).start()
try:
    for _ in range(1000):
        call()
except KeyboardInterrupt:
    print(time.perf_counter() - pressed[0])
"""


@pytest.mark.parametrize("which", ["forward", "backward", "family", "bidirectional", "norm", "convolution"])
def test_ctrl_c_ends_a_long_call(which: str) -> None:
    done = python(LONG_CALL, which)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 60  # the figure in the docs is measured elsewhere


def test_a_handler_that_raises_nothing_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[int] = []
    q = torch.rand(2, 2, 700, 16)
    wanted = momentum_attention(q, q, q, beta=0.5, backend="native")
    monkeypatch.setattr(native_call, "LONG", 0)
    before = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    try:
        threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        deadline = time.monotonic() + 30
        while not heard and time.monotonic() < deadline:
            assert torch.equal(momentum_attention(q, q, q, beta=0.5, backend="native"), wanted)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert heard


def test_a_second_ctrl_c_waits_for_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until they have ended, they write into tensors."""
    monkeypatch.setattr(native_call, "LONG", -1)
    ended: list[bool] = []

    def function(problem: Any) -> int:
        given = ctypes.cast(problem, ctypes.POINTER(Problem)).contents
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)
        ended.append(ctypes.cast(given.stop, ctypes.POINTER(ctypes.c_uint8)).contents.value == 1)
        return 0

    with pytest.raises(KeyboardInterrupt):
        native_call.call(function, Problem())
    assert ended == [True]


FORKED = """
import os, torch
from momentum_transformer import momentum_attention
from tests.family import needs_native
torch.set_num_threads(2)
q = torch.rand(4, 4, 300, 16, generator=torch.Generator().manual_seed(0))
call = lambda: momentum_attention(q, q, q, beta=0.5, backend="native")
wanted = call()
child = os.fork()
if child == 0:
    os._exit(0 if bytes(call().numpy()) == bytes(wanted.numpy()) else 3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_computes_the_same() -> None:
    done = python(FORKED, OMP_NUM_THREADS="2")
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_a_damaged_library_is_not_loaded(tmp_path: Path) -> None:
    import momentum_transformer.backend.cpu as package

    folder = Path(package.__file__).parent
    library = tmp_path / LIBRARY
    content = bytearray((folder / LIBRARY).read_bytes())
    library.write_bytes(content)
    program = "from momentum_transformer.backend.cpu.library import native; print(native())"
    assert not is_whole(library)  # no checksum beside it
    (tmp_path / SEAL).write_text((folder / SEAL).read_text())
    assert python(program, MOMENTUM_NATIVE=str(library)).stdout.startswith("Native(")
    seal = (tmp_path / SEAL).read_bytes()
    (tmp_path / SEAL).write_bytes(b"\xff" + seal[1:])
    assert not is_whole(library)
    (tmp_path / SEAL).write_bytes(seal)
    content[len(content) // 2] ^= 1
    library.write_bytes(content)
    assert "damaged: run `python -m" in python(program, MOMENTUM_NATIVE=str(library)).stdout

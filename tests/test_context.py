"""A sequence split over processes gives what one process gives: outputs, states and every gradient, in float64."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from momentum_transformer import (
    AdaptiveMomentumResidual,
    Encoder,
    GatedDeltaAttention,
    MomentumAttention,
    PerformerAttention,
    ShortConvolution,
    SoftmaxAttention,
    momentum_attention,
    recurrent_attention,
)
from momentum_transformer.context import context_parallel, current_context
from momentum_transformer.layers.reformer import ReformerAttention

from .family import MEMBERS, B, inputs, leaves, mixers
from .processes import run_together
from .ranks import Ranks, threads_for_processes

N = 21
CUTS = {2: (0, 8, N), 3: (0, 1, 9, N), 4: (0, 2, 11, 11, N)}  # parts of different lengths, one of them empty
MIXERS = {
    **mixers("linear", "retention", "delta", "gated delta", "momentum delta", "gated momentum"),
    "momentum with a convolution": MomentumAttention(beta=0.6, convolution=ShortConvolution()),
    "performer": PerformerAttention(features=8),
}
WITHOUT_RESETS = ("performer",)


def masks(n: int) -> dict[str, dict[str, Tensor]]:
    """Padding on either side and inside, documents that begin anywhere."""
    mask = torch.ones(B, n, dtype=torch.bool)
    mask[0, :5] = mask[0, 9] = mask[1, 12:] = False
    reset = torch.zeros(B, n, dtype=torch.bool)
    reset[0, [0, 3, 8]] = reset[1, [10, 11, 17]] = True
    return {"": {}, "mask": {"key_mask": mask}, "reset": {"reset": reset}, "both": {"key_mask": mask, "reset": reset}}


def part_of(x: Any, start: int, stop: int) -> Any:
    """Of a tensor with one value a token; others are whole everywhere."""
    if isinstance(x, Tensor) and x.ndim > 1:
        return x[:, start:stop] if x.dtype == torch.bool or x.ndim == 2 else x[:, :, start:stop]
    return x


def close(found: Tensor, expected: Tensor, what: str) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-11, msg=lambda text: f"{what}: {text}")


def total(x: Tensor, group: Any) -> Tensor:
    x = x.contiguous()
    dist.all_reduce(x, group=group)
    return x


def compare_attention(attend: Any, given: dict[str, Any], group: Any, what: str) -> None:
    """Outputs and gradients of this rank's part against those of the whole sequence."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    start, stop = CUTS[size][rank : rank + 2]
    known = leaves(given)
    weight = torch.randn(*given["v"].shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y, state = attend(**given, return_state=True)
    expected = torch.autograd.grad(
        (y * weight).sum() + state[0].sum(), list(known.values()), allow_unused=True, materialize_grads=True
    )

    mine = {name: part_of(x, start, stop) for name, x in given.items()}
    mine = {name: x.detach().requires_grad_() if name in known else x for name, x in mine.items()}
    with context_parallel(group):
        y_part, after = attend(**mine, return_state=True)
    close(y_part, y[:, :, start:stop], f"{what}: y")
    loss = (y_part * weight[:, :, start:stop]).sum()
    if rank == size - 1:
        for name, ours, whole in zip(after._fields, after, state, strict=True):
            if whole is not None:
                close(ours, whole, f"{what}: {name} after the last part")
        loss = loss + after[0].sum()
    found = torch.autograd.grad(loss, [mine[name] for name in known], allow_unused=True, materialize_grads=True)
    for name, ours, whole in zip(known, found, expected, strict=True):
        of_all = known[name].ndim == 1
        close(total(ours, group) if of_all else ours, part_of(whole, start, stop), f"{what}: gradient of {name}")


def encoder_of(name: str) -> Encoder:
    made = Encoder(2, 8, 2, attention=MIXERS[name], residual=AdaptiveMomentumResidual(), feedforward=8).double()
    generator = torch.Generator().manual_seed(2)  # of its own: threads share the numbers of torch.manual_seed
    with torch.no_grad():
        for weight in (*made.parameters(), *made.buffers()):
            drawn = 0.3 * torch.randn(weight.shape, generator=generator, dtype=torch.float64)
            weight.copy_(drawn if weight.is_floating_point() else torch.zeros_like(weight))  # zero: a seed
    made.gradient_checkpointing = name == "gated delta"
    return made


def compare_encoder(name: str, masked: str, group: Any) -> None:
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    start, stop = CUTS[size][rank : rank + 2]
    generator = torch.Generator().manual_seed(1)
    x, weight = (torch.randn(B, N, 8, generator=generator, dtype=torch.float64) for _ in range(2))
    encoder, told = encoder_of(name), masks(N)[masked]
    if "key_mask" in told:
        weight = torch.where(told["key_mask"][..., None], weight, 0)
    y = encoder(x, **told) * weight
    expected = torch.autograd.grad(y.sum(), list(encoder.parameters()))
    with context_parallel(group):
        mine = encoder(x[:, start:stop], **{key: value[:, start:stop] for key, value in told.items()})
    mine = mine * weight[:, start:stop]
    close(mine, y[:, start:stop], f"{name} {masked}")
    found = torch.autograd.grad(mine.sum(), list(encoder.parameters()))
    for (parameter, _), ours, whole in zip(encoder.named_parameters(), found, expected, strict=True):
        close(total(ours, group), whole, f"{name} {masked}: {parameter}")


@pytest.fixture
def ranks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Ranks:
    """As many as the test's parameter says."""
    return threads_for_processes(request.param, monkeypatch)


@pytest.mark.grid
@pytest.mark.parametrize("ranks", [2, 4], indirect=True)
@pytest.mark.parametrize("masked", ["", "mask", "reset", "both"])
@pytest.mark.parametrize("member", MEMBERS)
def test_every_member_in_parts_equals_the_whole(member: str, masked: str, ranks: Ranks) -> None:
    ranks.run(compare_attention, recurrent_attention, inputs(member, N) | masks(N)[masked], ranks, member)


@pytest.mark.parametrize("ranks", [2, 4], indirect=True)
@pytest.mark.parametrize("masked", ["", "mask"])
@pytest.mark.parametrize("normalize", [True, False])
def test_momentum_attention_in_parts_equals_the_whole(normalize: bool, masked: str, ranks: Ranks) -> None:
    given = {name: x for name, x in inputs("momentum", N).items() if name in "qkv"} | masks(N)[masked]
    ranks.run(compare_attention, momentum_attention, given | {"beta": 0.6, "normalize": normalize}, ranks, "momentum")


@pytest.mark.parametrize("ranks", [3, 4], indirect=True)
@pytest.mark.parametrize("backend", ["chunked", "recurrent"])
def test_so_it_does_in_every_form(backend: str, ranks: Ranks) -> None:
    ranks.run(compare_attention, recurrent_attention, inputs("gated delta", N) | {"backend": backend}, ranks, backend)


@pytest.mark.grid
@pytest.mark.parametrize("ranks", [2, 4], indirect=True)
@pytest.mark.parametrize("masked", ["", "mask", "reset", "both"])
@pytest.mark.parametrize("name", MIXERS)
def test_an_encoder_in_parts_equals_the_whole(name: str, masked: str, ranks: Ranks) -> None:
    if masked in ("reset", "both") and name in WITHOUT_RESETS:
        with pytest.raises(ValueError, match="knows no resets"):
            ranks.run(compare_encoder, name, masked, ranks)
    else:
        ranks.run(compare_encoder, name, masked, ranks)


def compare_processes() -> None:
    """By two of the processes, then by all four."""
    pair = dist.new_group([0, 1])
    for group in (pair, dist.group.WORLD) if dist.get_rank() < 2 else (dist.group.WORLD,):
        for member in ("momentum", "retention", "gated delta", "everything"):
            compare_attention(recurrent_attention, inputs(member, N) | masks(N)["both"], group, member)
        for name in ("momentum with a convolution", "momentum delta"):
            compare_encoder(name, "mask", group)


def test_two_and_four_processes_do_what_threads_do(tmp_path: Path) -> None:
    run_together(compare_processes, 4, tmp_path)


@contextmanager
def alone_of_two(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[None]:
    """Inside a split, as far as one process can tell; good for what is refused before anything is exchanged."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=0, world_size=1)
    monkeypatch.setattr(dist, "get_world_size", lambda group=None: 2)
    try:
        with context_parallel():
            yield
    finally:
        monkeypatch.undo()
        dist.destroy_process_group()


REFUSED: dict[str, tuple[Any, dict[str, Any]]] = {
    "softmax attention": (SoftmaxAttention(), {}),
    "Reformer": (ReformerAttention(chunk_size=4), {}),
    "attention without causal order": (MomentumAttention(), {"causal": False}),
    'weighting="terminal"': (MomentumAttention(weighting="terminal"), {}),
    "a convolution without causal order": (GatedDeltaAttention(), {"causal": False}),
}


def test_what_needs_the_whole_sequence_says_so_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    q = torch.randn(1, 2, 4, 4)
    _, state = recurrent_attention(q, q, q, return_state=True)
    with alone_of_two(monkeypatch, tmp_path):
        for what, (mixer, options) in REFUSED.items():
            encoder: nn.Module = Encoder(1, 8, 2, attention=mixer, **options)
            with pytest.raises(ValueError, match=f"^{what} needs the whole sequence in one process"):
                encoder(torch.randn(1, 8, 8))
        with pytest.raises(ValueError, match=r"^a state of earlier tokens needs the whole sequence"):
            recurrent_attention(q, q, q, state=state, return_state=True)
    assert current_context() is None


def test_a_split_needs_processes() -> None:
    with pytest.raises(ValueError, match=r"needs processes: start with torchrun"), context_parallel():
        pass

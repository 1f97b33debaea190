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
    DeltaAttention,
    Encoder,
    GatedDeltaAttention,
    GatedMomentumAttention,
    LinearAttention,
    MomentumAttention,
    MomentumDeltaAttention,
    PerformerAttention,
    RetentionAttention,
    ShortConvolution,
    SoftmaxAttention,
    momentum_attention,
    recurrent_attention,
)
from momentum_transformer.context import context_parallel, current_context
from momentum_transformer.layers.reformer import ReformerAttention

from .family import MEMBERS, B, inputs, leaves
from .processes import run_together

N = 21
CUTS = {2: (0, 8, N), 4: (0, 2, 11, 11, N)}  # parts of different lengths, one of them empty
MIXERS = {
    "linear": LinearAttention(),
    "momentum with a convolution": MomentumAttention(beta=0.6, convolution=ShortConvolution()),
    "performer": PerformerAttention(features=8),
    "retention": RetentionAttention(),
    "delta": DeltaAttention(),
    "gated delta": GatedDeltaAttention(),
    "momentum delta": MomentumDeltaAttention(),
    "gated momentum": GatedMomentumAttention(),
}


def masks(n: int, only: int | None = None) -> dict[str, dict[str, Tensor]]:
    """Padding on either side and inside, documents that begin anywhere; all cases, or one by its number."""
    mask = torch.ones(B, n, dtype=torch.bool)
    mask[0, :5] = mask[0, 9] = mask[1, 12:] = False
    reset = torch.zeros(B, n, dtype=torch.bool)
    reset[0, [0, 3, 8]] = reset[1, [10, 11, 17]] = True
    cases = {"": {}, "mask": {"key_mask": mask}, "reset": {"reset": reset}, "both": {"key_mask": mask, "reset": reset}}
    return dict(list(cases.items()) if only is None else [list(cases.items())[only % 4]])


def part_of(x: Any, start: int, stop: int) -> Any:
    """Of a tensor with one value a token; others are whole everywhere."""
    if isinstance(x, Tensor) and x.ndim > 1:
        return x[:, start:stop] if x.dtype == torch.bool or x.ndim == 2 else x[:, :, start:stop]
    return x


def close(found: Tensor, expected: Tensor, what: str) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-11, msg=lambda text: f"{what}: {text}")


def total(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    x = x.contiguous()
    dist.all_reduce(x, group=group)
    return x


def compare_attention(attend: Any, given: dict[str, Any], group: dist.ProcessGroup, what: str) -> None:
    """Outputs and gradients of this rank's part against those of the whole sequence."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    start, stop = CUTS[size][rank : rank + 2]
    known = leaves(given)
    weight = torch.randn(*given["v"].shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y, state = attend(**given, return_state=True)
    expected = torch.autograd.grad((y * weight).sum() + state[0].sum(), list(known.values()))

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
    found = torch.autograd.grad(loss, [mine[name] for name in known])
    for name, ours, whole in zip(known, found, expected, strict=True):
        of_all = known[name].ndim == 1
        close(total(ours, group) if of_all else ours, part_of(whole, start, stop), f"{what}: gradient of {name}")


def compare_members(group: dist.ProcessGroup, *, thorough: bool) -> None:
    for number, member in enumerate(MEMBERS):
        for name, masked in masks(N, None if thorough else number + dist.get_world_size(group) // 2).items():
            compare_attention(recurrent_attention, inputs(member, N) | masked, group, f"{member} {name}")
    paper = {name: x for name, x in inputs("momentum", N).items() if name in "qkv"} | {"beta": 0.6, "gamma": 0.9}
    compare_attention(momentum_attention, paper, group, "momentum_attention")
    compare_attention(
        momentum_attention, paper | {"key_mask": masks(N)["mask"]["key_mask"]}, group, "momentum_attention mask"
    )
    for backend in ("chunked", "recurrent"):
        compare_attention(recurrent_attention, inputs("gated delta", N) | {"backend": backend}, group, backend)


def compare_encoders(group: dist.ProcessGroup, *, thorough: bool) -> None:
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    start, stop = CUTS[size][rank : rank + 2]
    x = torch.randn(B, N, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for number, (name, mixer) in enumerate(MIXERS.items()):
        torch.manual_seed(2)
        encoder = Encoder(2, 8, 2, attention=mixer, residual=AdaptiveMomentumResidual(), feedforward=8).double()
        encoder.gradient_checkpointing = name == "gated delta"
        for masked, told in masks(N, None if thorough else number + dist.get_world_size(group) // 2).items():
            if "reset" in told and name in ("linear", "momentum with a convolution", "performer"):
                continue  # they know no resets
            what = f"{name} {masked}"
            seen = told.get("key_mask", torch.ones(B, N, dtype=torch.bool))
            y = torch.where(seen[..., None], encoder(x, **told), 0)
            expected = torch.autograd.grad(y.square().sum(), list(encoder.parameters()))
            with context_parallel(group):
                mine = encoder(x[:, start:stop], **{key: value[:, start:stop] for key, value in told.items()})
            mine = torch.where(seen[:, start:stop, None], mine, 0)
            close(mine, y[:, start:stop], what)
            found = torch.autograd.grad(mine.square().sum(), list(encoder.parameters()))
            for (parameter, _), ours, whole in zip(encoder.named_parameters(), found, expected, strict=True):
                close(total(ours, group), whole, f"{what}: {parameter}")


def compare_all(thorough: bool) -> None:
    """By two of the processes, then by all four."""
    pair = dist.new_group([0, 1])
    for group in (pair, dist.group.WORLD) if dist.get_rank() < 2 else (dist.group.WORLD,):
        compare_members(group, thorough=thorough)
        compare_encoders(group, thorough=thorough)


def test_a_sequence_over_two_and_four_processes_equals_the_whole(tmp_path: Path) -> None:
    run_together(compare_all, 4, tmp_path, False)


@pytest.mark.slow
def test_it_does_so_with_every_mask_for_every_member(tmp_path: Path) -> None:
    run_together(compare_all, 4, tmp_path, True)


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

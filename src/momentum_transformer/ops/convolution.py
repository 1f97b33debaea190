"""A short causal convolution, each channel by itself: a token and the few before it, as the gated mixers want them."""

import torch
import torch.nn.functional as F  # noqa: N812 (the field's name for it)

from .shapes import Bool, Float, Tensor


def short_convolution(
    x: Float[Tensor, "b n c"],
    weight: Float[Tensor, "c taps"],
    past: Float[Tensor, "b r c"] | None = None,
    *,
    bias: Float[Tensor, " c"] | None = None,
    mask: Bool[Tensor, "b n"] | None = None,
    reset: Bool[Tensor, "b n"] | None = None,
    silu: bool = False,
) -> tuple[Float[Tensor, "b n c"], Float[Tensor, "b r c"]]:
    """bias + Σ_r weight_r x_{t-r} over the last `taps` tokens that exist in this document; the taps - 1 to go on from.

    `past` are the taps - 1 tokens before the first one, zeros where there are none. The output of a token that does
    not exist is zero. `silu`: the output passes SiLU. Computed in float32 or wider, and rounded once.
    """
    n, before = x.shape[1], weight.shape[1] - 1
    dtype, wide = x.dtype, torch.promote_types(x.dtype, torch.float32)
    x, weight = x.to(wide), weight.to(wide)
    past = x.new_zeros(x.shape[0], before, x.shape[2]) if past is None else past.to(dtype).to(wide)
    line, number, order = _line(x, past, mask, reset)
    y = torch.zeros_like(x) if bias is None else bias.to(wide).expand(x.shape)
    for r in range(before + 1):  # r tokens ago
        earlier = line[:, before - r : before - r + n]
        if number is not None and r:
            same = number[:, before - r : before - r + n] == number[:, before:]
            earlier = torch.where(same[..., None], earlier, 0)
        y = y + weight[:, before - r] * earlier
    after = _last(line, number, mask, before, reset)
    if mask is not None and order is not None:
        back = torch.argsort(order, dim=1)[..., None].expand(y.shape)
        y = torch.where(mask[..., None], y.gather(1, back), 0)
    return (F.silu(y) if silu else y).to(dtype), after.to(dtype)


def two_way_convolution(
    x: Float[Tensor, "b n c"],
    weight: Float[Tensor, "c taps"],
    bias: Float[Tensor, " c"] | None = None,
    *,
    turned: int,
    mask: Bool[Tensor, "b n"] | None = None,
    reset: Bool[Tensor, "b n"] | None = None,
    silu: bool = False,
) -> Float[Tensor, "b n c"]:
    """`short_convolution`, but the channels from `turned` on look at the tokens that come after."""
    ahead_bias, back_bias = (None, None) if bias is None else (bias[:turned], bias[turned:])
    ahead, _ = short_convolution(x[..., :turned], weight[:turned], bias=ahead_bias, mask=mask, reset=reset, silu=silu)
    if reset is not None:  # read backwards, a document begins where it has ended
        reset = torch.cat([torch.ones_like(reset[:, :1]), reset[:, 1:].flip(1)], 1)[:, : reset.shape[1]]
    mask = None if mask is None else mask.flip(1)
    back, _ = short_convolution(
        x[..., turned:].flip(1), weight[turned:], bias=back_bias, mask=mask, reset=reset, silu=silu
    )
    return torch.cat([ahead, back.flip(1)], 2)


def border(
    x: Float[Tensor, "b n c"],
    before: int,
    *,
    mask: Bool[Tensor, "b n"] | None = None,
    reset: Bool[Tensor, "b n"] | None = None,
) -> tuple[Float[Tensor, "b r r"], Float[Tensor, "b r c"]]:
    """How this part changes the convolution's window: window after = transition @ window before + last."""
    b, n, c = x.shape
    tail = x[:, -before:] if mask is None and reset is None else x
    line, number, _ = _line(tail, x.new_zeros(b, before, c), mask, reset)
    count = torch.full((b,), n, device=x.device) if mask is None else mask.sum(1)
    place = torch.arange(before, device=x.device)
    kept = place == (place[:, None] + count[:, None, None])
    if reset is not None:
        kept = kept & ~reset.any(1)[:, None, None]
    return kept.to(x.dtype), _last(line, number, mask, before, reset)


def _line(
    x: Tensor, past: Tensor, mask: Tensor | None, reset: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The past and the tokens that exist, the number of each one's document, and the order that put them first."""
    document = None if reset is None else reset.cumsum(1)
    order = None
    if mask is not None:
        order = torch.argsort(~mask, dim=1, stable=True)
        x = torch.where(mask[..., None], x, 0).gather(1, order[..., None].expand(x.shape))
        document = None if document is None else document.gather(1, order)
    number = None if document is None else F.pad(document, (past.shape[1], 0))
    return torch.cat([past, x], 1), number, order


def _last(line: Tensor, number: Tensor | None, mask: Tensor | None, before: int, reset: Tensor | None) -> Tensor:
    """The last tokens of the line that exist, zero where they belong to a document that has ended."""
    n = line.shape[1] - before
    count = torch.full((line.shape[0],), n, device=line.device) if mask is None else mask.sum(1)
    place = count[:, None] + torch.arange(before, device=line.device)
    kept = line.gather(1, place[..., None].expand(-1, -1, line.shape[2]))
    if number is None or reset is None:
        return kept
    current = reset.sum(1, keepdim=True)
    return torch.where((number.gather(1, place) == current)[..., None], kept, 0)

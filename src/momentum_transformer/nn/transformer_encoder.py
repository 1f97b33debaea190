"""torch.nn.TransformerEncoder and its layer, with any mixer in the place of softmax attention."""

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812 (the field's name for it)
from torch import Tensor, nn

from ..layers.block import Activation, Attention, FeedForward
from ..layers.dropout import Dropout
from ..layers.paper_mixers import MomentumAttention
from ..layers.situation import Mixer
from .masks import seen, split

ACTIVATIONS: dict[object, Activation] = {"relu": "relu", "gelu": "gelu", F.relu: "relu", F.gelu: "gelu"}


class TransformerEncoderLayer(nn.Module):
    """The arguments of torch.nn.TransformerEncoderLayer, and how tokens mix.

    A token that `src_key_padding_mask` hides does not exist: the others get what they get without it.

    Args:
        d_model: features of a token.
        nhead: attention heads.
        dim_feedforward: hidden features of the feed-forward network.
        dropout: of what leaves the attention and the feed-forward network; there are no attention weights to drop.
        activation: relu or gelu, as a name or a function.
        layer_norm_eps: of the norms.
        batch_first: whether tensors are (batch, length, features), not (length, batch, features).
        norm_first: whether norms are before attention and feed-forward network, not behind them.
        bias: True.
        device: of the parameters.
        dtype: of the parameters.
        attention: how tokens mix, by default MomentumAttention().

    Examples:
        >>> layer = TransformerEncoderLayer(16, 2, batch_first=True)
        >>> y = layer(torch.randn(3, 50, 16), is_causal=True)
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        attention: Mixer | None = None,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be relu or gelu, not {activation!r}")
        if not bias:
            raise ValueError("bias must be True: these layers have biases")
        self.batch_first, self.norm_first = batch_first, norm_first
        mixer = MomentumAttention() if attention is None else attention
        self.self_attn = Attention(d_model, nhead, mixer, causal=False)
        self.feedforward = FeedForward(d_model, dim_feedforward, activation=ACTIVATIONS[activation], dropout=dropout)
        self.norm1 = nn.LayerNorm(d_model, eps=layer_norm_eps)
        self.norm2 = nn.LayerNorm(d_model, eps=layer_norm_eps)
        self.dropout = Dropout(dropout)
        self.to(device=device, dtype=dtype)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """src (n, b, d_model), with `batch_first` (b, n, d_model), or (n, d_model) → the same shape."""
        return _run([self], src, src_mask, src_key_padding_mask, is_causal, batch_first=self.batch_first)

    def mix(self, x: Tensor, key_mask: Tensor | None, causal: bool) -> Tensor:
        """x (b, n, d_model) after this layer."""
        first = self.norm_first
        update, _ = self.self_attn(self.norm1(x) if first else x, key_mask=key_mask, causal=causal)
        x = x + self.dropout(update)
        x = x if first else self.norm1(x)
        x = x + self.dropout(self.feedforward(self.norm2(x) if first else x))
        return x if first else self.norm2(x)


class TransformerEncoder(nn.Module):
    """The arguments of torch.nn.TransformerEncoder: copies of a layer, and a norm behind them.

    Args:
        encoder_layer: a `TransformerEncoderLayer` of this package.
        num_layers: how many copies.
        norm: behind the last layer; None for none.
        enable_nested_tensor: changes nothing here.
        mask_check: changes nothing here.

    Examples:
        >>> encoder = TransformerEncoder(TransformerEncoderLayer(16, 2, batch_first=True), num_layers=2)
        >>> y = encoder(torch.randn(3, 50, 16), is_causal=True)
    """

    def __init__(
        self,
        encoder_layer: TransformerEncoderLayer,
        num_layers: int,
        norm: nn.Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        if not isinstance(encoder_layer, TransformerEncoderLayer):
            raise ValueError(
                "encoder_layer must be a momentum_transformer.nn.TransformerEncoderLayer, not "
                f"{type(encoder_layer).__module__}.{type(encoder_layer).__name__}"
            )
        if num_layers < 1:
            raise ValueError(f"num_layers must be 1 or more, not {num_layers}")
        # the last two arguments choose among ways to compute the same, of which there is one here
        self.layers = nn.ModuleList(copy.deepcopy(encoder_layer) for _ in range(num_layers))
        self.num_layers, self.norm = num_layers, norm
        self.batch_first = encoder_layer.batch_first

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """src (n, b, d_model), with `batch_first` (b, n, d_model), or (n, d_model) → the same shape.

        `mask` may be the causal one, or be left out where `is_causal` says the same; others are refused.
        `src_key_padding_mask` (b, n) is True where a token does not exist.
        """
        layers = [layer for layer in self.layers if isinstance(layer, TransformerEncoderLayer)]
        x = _run(layers, src, mask, src_key_padding_mask, bool(is_causal), batch_first=self.batch_first)
        return x if self.norm is None else self.norm(x)


def _run(
    layers: list[TransformerEncoderLayer],
    src: Tensor,
    mask: Tensor | None,
    padding: Tensor | None,
    is_causal: bool,
    *,
    batch_first: bool,
) -> Tensor:
    if src.ndim == 2:
        padding = padding[None] if padding is not None and padding.ndim == 1 else padding
        return _run(layers, src[None], mask, padding, is_causal, batch_first=True)[0]
    if src.ndim != 3:
        raise ValueError(f"src must be (batch, length, features) or (length, features), not {tuple(src.shape)}")
    x = src if batch_first else src.transpose(0, 1)
    causal = is_causal if mask is None else _is_causal(mask, x, layers[0].self_attn.heads)
    if is_causal and not causal and x.shape[1] > 1:
        raise ValueError("is_causal says that mask is the causal one, which it is not; leave out one of them")
    key_mask = None
    if padding is not None:
        if padding.shape != x.shape[:2]:
            raise ValueError(
                f"src_key_padding_mask must be (batch, length) = {tuple(x.shape[:2])}, not {tuple(padding.shape)}"
            )
        key_mask = seen(padding, "src_key_padding_mask", hidden=True)
    for layer in layers:
        x = layer.mix(x, key_mask, causal)
    return x if batch_first else x.transpose(0, 1)


def _is_causal(mask: Tensor, x: Tensor, heads: int) -> bool:
    """Whether the mask keeps causal order; it must do this, or nothing."""
    b, n = x.shape[:2]
    if tuple(mask.shape) not in ((n, n), (b * heads, n, n)):
        raise ValueError(f"mask must be (length, length) = {(n, n)}, not {tuple(mask.shape)}")
    visible = seen(mask, "mask", hidden=True)
    keys, causal = split(visible.view(-1, heads if mask.ndim == 3 else 1, n, n), "mask")
    if keys is not None:
        raise ValueError("mask hides a token from every other; say this by src_key_padding_mask, True where it is")
    return causal

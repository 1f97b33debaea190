"""torch.nn's names: the same calls and shapes, a hidden token does not exist, and what cannot be done is refused."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from momentum_transformer import (
    MomentumAttention,
    SoftmaxAttention,
    momentum_attention,
)
from momentum_transformer.layers import Mixer
from momentum_transformer.nn import TransformerEncoder, TransformerEncoderLayer, scaled_dot_product_attention

from .family import mixers

B, H, N, D = 3, 4, 9, 32
MIXERS = mixers("momentum", "linear", "softmax", "gated delta")
SCATTERED = torch.arange(N)[:, None] % 3 == torch.arange(N) % 2
CAUSAL = nn.Transformer.generate_square_subsequent_mask(N)


def encoder(mixer: Mixer | None = None, **options: Any) -> TransformerEncoder:
    torch.manual_seed(0)
    options = {"dim_feedforward": 48, "dropout": 0.0, "batch_first": True, **options}
    layer = TransformerEncoderLayer(D, H, attention=mixer, **options)
    return TransformerEncoder(layer, 2, norm=nn.LayerNorm(D)).double().eval()


def tokens(seed: int = 1) -> Tensor:
    return torch.randn(B, N, D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def heads(n: int = N, h: int = H) -> Tensor:
    return torch.randn(B, h, n, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(n + h))


def padding() -> Tensor:
    """True where there is no token: right, left and inside."""
    mask = torch.zeros(B, N, dtype=torch.bool)
    mask[0, 6:] = mask[1, :2] = mask[2, 4] = True
    return mask


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("mixer", MIXERS)
def test_a_token_that_padding_hides_does_not_exist(mixer: str, norm_first: bool, causal: bool) -> None:
    model, x, hidden = encoder(MIXERS[mixer], norm_first=norm_first), tokens(), padding()
    x[hidden] = float("nan")
    y = model(x, src_key_padding_mask=hidden, is_causal=causal)
    for row in range(B):
        alone = model(x[row][~hidden[row]][None], is_causal=causal)[0]
        torch.testing.assert_close(y[row][~hidden[row]], alone)


@pytest.mark.parametrize("mixer", MIXERS)
def test_is_causal_means_that_no_token_sees_a_later_one(mixer: str) -> None:
    model, x = encoder(MIXERS[mixer]), tokens()
    whole = model(x, is_causal=True)
    torch.testing.assert_close(whole[:, :5], model(x[:, :5], is_causal=True))
    assert not torch.allclose(whole[:, :5], model(x)[:, :5])


def test_layouts_masks_and_hints_of_torch_mean_the_same() -> None:
    x, hidden = tokens(), padding()
    model, other = encoder(), encoder(batch_first=False)
    wanted = model(x, src_key_padding_mask=hidden, is_causal=True)
    masks = (CAUSAL, CAUSAL.double(), CAUSAL.isinf(), CAUSAL.expand(B * H, N, N))
    for mask in masks:
        for hint in (None, False, True):
            assert model(x, mask, hidden, hint).equal(wanted)
    floats = torch.zeros(B, N).masked_fill(hidden, float("-inf"))
    assert model(x, src_key_padding_mask=floats, is_causal=True).equal(wanted)
    turned = other(x.transpose(0, 1), CAUSAL, hidden).transpose(0, 1)
    torch.testing.assert_close(turned, wanted)
    torch.testing.assert_close(model(x[0], CAUSAL, hidden[0]), wanted[0])
    assert model(x, torch.zeros(N, N)).equal(model(x))


def test_softmax_is_that_of_torch_itself() -> None:
    ours = TransformerEncoderLayer(D, H, 48, 0.0, batch_first=True, attention=SoftmaxAttention()).double()
    theirs = nn.TransformerEncoderLayer(D, H, 48, 0.0, batch_first=True).double()
    attention = ours.self_attn
    parts = (attention.query, attention.key, attention.value)
    pairs: dict[str, Tensor] = {
        "self_attn.in_proj_weight": torch.cat([part.weight for part in parts]),
        "self_attn.in_proj_bias": torch.cat([part.bias for part in parts]),
        "self_attn.out_proj.weight": attention.out.weight,
        "self_attn.out_proj.bias": attention.out.bias,
    }
    for name, part in (("linear1", ours.feedforward.enter), ("linear2", ours.feedforward.leave)):
        pairs |= {f"{name}.weight": part.weight, f"{name}.bias": part.bias}
    for name in ("norm1", "norm2"):
        pairs |= {f"{name}.{kind}": tensor for kind, tensor in getattr(ours, name).state_dict().items()}
    theirs.load_state_dict(pairs)
    x, hidden = tokens(), padding()
    hidden[1, :2] = False  # a row that sees nothing is NaN in PyTorch
    seen = ~hidden
    found = ours(x, CAUSAL, hidden, True)
    wanted = theirs(x, CAUSAL.isinf(), hidden, True)
    torch.testing.assert_close(found[seen], wanted[seen])


def test_gradients_reach_every_weight() -> None:
    model = encoder().train()
    model(tokens(), src_key_padding_mask=padding(), is_causal=True).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, x: m(x, SCATTERED), "An arbitrary one needs softmax attention"),
        (lambda m, x: m(x, torch.full((N, N), 0.5)), "adds to the scores"),
        (lambda m, x: m(x, CAUSAL.T), "An arbitrary one needs"),
        (lambda m, x: m(x, torch.zeros(N, N), is_causal=True), "is_causal says that mask is the causal one"),
        (lambda m, x: m(x, torch.zeros(3, 3)), r"mask must be \(length, length\) = \(9, 9\), not \(3, 3\)"),
        (lambda m, x: m(x, src_key_padding_mask=padding().T), r"must be \(batch, length\) = \(3, 9\), not \(9, 3\)"),
        (lambda m, x: m(x, src_key_padding_mask=padding().long()), "must be bool or floating point, not torch.int64"),
        (lambda m, x: m(x, padding()[:1].expand(N, N)), "say this by src_key_padding_mask"),
        (lambda m, x: m(x[0, 0]), r"src must be \(batch, length, features\)"),
        (lambda m, x: TransformerEncoderLayer(D, H, activation="swish"), "activation must be relu or gelu"),
        (lambda m, x: TransformerEncoderLayer(D, H, bias=False), "bias must be True"),
        (lambda m, x: TransformerEncoder(nn.TransformerEncoderLayer(D, H), 2), "must be a momentum_transformer.nn"),
        (lambda m, x: TransformerEncoder(m.layers[0], 0), "num_layers must be 1 or more"),
    ],
    ids=range(13),
)
def test_the_encoder_refuses_what_it_cannot_do(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(encoder(), tokens())


def test_a_layer_says_how_its_tokens_mix() -> None:
    layer = TransformerEncoderLayer(16, 2, 32, attention=MomentumAttention(beta=0.3, gamma=0.8))
    assert "MomentumAttention(beta=0.3, gamma=0.8)" in str(TransformerEncoder(layer, 2))


def test_the_call_of_torch_is_momentum_attention() -> None:
    q, k, v = heads(), heads() + 1, heads() - 1
    options = {"beta": 0.6, "gamma": 0.9}
    causal = momentum_attention(q, k, v, **options)
    assert scaled_dot_product_attention(q, k, v, is_causal=True, **options).equal(causal)
    assert scaled_dot_product_attention(q, k, v, None, 0.0, True, 8**-0.5, **options).equal(causal)
    order = torch.ones(N, N, dtype=torch.bool).tril()
    for mask in (order, CAUSAL, order.expand(B, H, N, N), CAUSAL.masked_fill(~order, torch.finfo(torch.float).min)):
        assert scaled_dot_product_attention(q, k, v, mask, **options).equal(causal)
    whole = momentum_attention(q, k, v, causal=False, **options)
    assert scaled_dot_product_attention(q, k, v, **options).equal(whole)
    single = scaled_dot_product_attention(q[:, 0], k[:, 0], v[:, 0], is_causal=True, **options)
    torch.testing.assert_close(single, causal[:, 0])


@pytest.mark.parametrize("causal", [False, True])
def test_a_key_that_the_mask_hides_does_not_exist(causal: bool) -> None:
    q, k, v, hidden = heads(), heads() + 1, heads() - 1, padding()
    for x in (k, v):
        x.masked_fill_(hidden[:, None, :, None], float("nan"))
    mask = ~hidden[:, None, None]
    y = scaled_dot_product_attention(q, k, v, mask, is_causal=causal)
    assert y.isfinite().all()
    for row in range(B):
        keep = ~hidden[row]
        one, two, three = (x[row : row + 1, :, keep] for x in (q, k, v))
        alone = scaled_dot_product_attention(one, two, three, is_causal=causal)
        torch.testing.assert_close(y[row, :, keep], alone[0])
    if causal:
        both = mask & torch.ones(N, N, dtype=torch.bool).tril()
        assert scaled_dot_product_attention(q, k, v, both).equal(y)


def test_more_keys_than_queries_and_fewer_heads_of_keys() -> None:
    q, k, v = heads(4), heads(N) + 1, heads(N) - 1
    assert scaled_dot_product_attention(q, k, v).equal(momentum_attention(q, k, v, beta=0.1, causal=False))
    grouped = scaled_dot_product_attention(q, k[:, :2], v[:, :2], enable_gqa=True)
    wanted = scaled_dot_product_attention(q, *(x[:, :2].repeat_interleave(2, 1) for x in (k, v)))
    assert grouped.equal(wanted)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attn_mask": SCATTERED}, "An arbitrary one needs softmax attention"),
        ({"attn_mask": torch.full((B, H, N, N), 0.5)}, "adds to the scores"),
        ({"attn_mask": torch.arange(H)[None, :, None, None] < torch.arange(N)}, "differs from head to head"),
        ({"attn_mask": torch.ones(N, 2, dtype=torch.bool)}, "cannot be broadcast to"),
        ({"attn_mask": torch.ones(N, N, dtype=torch.long)}, "attn_mask must be bool or floating point"),
        ({"dropout_p": 0.1}, "dropout_p must be 0, not 0.1"),
        ({"scale": 1.0}, "scale must be None or 1 / √d, not 1.0"),
        ({"query": torch.zeros(N, 8)}, r"query must be \(b, h, n, d\)"),
        ({"query": heads(4), "is_causal": True}, "is_causal needs as many queries as keys, not 4 and 9"),
        ({"query": heads(h=3), "enable_gqa": True}, "multiple of those of key, not 3 and 4"),
    ],
    ids=range(10),
)
def test_the_call_refuses_what_it_cannot_do(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        scaled_dot_product_attention(**{"query": heads(), "key": heads(), "value": heads(), **options})

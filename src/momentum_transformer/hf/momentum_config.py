"""What a model of ours is, as Transformers keeps it in config.json."""

from difflib import get_close_matches
from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from ..layers.block import Preset
from ..layers.presets import ModernBlock, PaperBlock
from ..models.encoder import Encoder
from ..ops.checks import check_choice
from .descriptions import MIXERS, RESIDUALS, described, made

# what each block can be told, the default first
BLOCKS: dict[str, dict[str, tuple[str, ...]]] = {
    "paper": {"norm": ("pre", "post"), "hidden_act": ("gelu", "relu")},
    "modern": {"norm": ("pre",), "hidden_act": ("silu",)},
}


@strict
class MomentumConfig(PreTrainedConfig):
    """Sizes, mixers and connections of a Momentum Transformer, or of any member of the family.

    Attributes:
        mixers: how tokens mix, for all layers or one a layer: a name of `hf.descriptions.MIXERS`, a dictionary of the
            name and options, or a mixer such as MomentumAttention(beta=0.6).
        residual: how layers connect, likewise, of `hf.descriptions.RESIDUALS`.
        block: "paper", LayerNorm and two linear maps; or "modern", RMSNorm before each part and SwiGLU, which has two
            thirds of `intermediate_size` features, since it has three matrices.
        positions: "none"; "sinusoidal", beside the embedding, half of the width each; "added-sinusoidal" or "learned",
            added to it.
        scale_embedding: whether what is embedded is multiplied by the square root of its width.
        causal: whether a token sees only what came before it.
        pool: of a classifier: "tokens" takes the mean over the tokens that exist, "positions" divides by the length.

    Examples:
        >>> config = MomentumConfig(mixers="gated-delta")
        >>> config = MomentumConfig(num_hidden_layers=4, mixers=["gated-delta"] * 3 + ["softmax"])
        >>> config = MomentumConfig(mixers={"name": "momentum", "beta": 0.6}, residual={"name": "adaptive"})
    """

    model_type = "momentum"
    keys_to_ignore_at_inference = ["past_key_values"]  # noqa: RUF012 (Transformers reads it from the class)

    vocab_size: int = 32_000
    hidden_size: int = 512
    num_hidden_layers: int = 8
    num_attention_heads: int = 8
    intermediate_size: int | None = None
    mixers: Any = "momentum"
    residual: Any = "plain"
    positions: Literal["none", "sinusoidal", "added-sinusoidal", "learned"] = "none"
    max_position_embeddings: int = 2048
    scale_embedding: bool = False
    block: str = "paper"
    norm: Literal["pre", "post"] = "pre"
    hidden_act: Literal["gelu", "relu", "silu"] | None = None
    dropout: float = 0.0
    embedding_dropout: float = 0.0
    final_norm: bool = True
    causal: bool = True
    head_bias: bool = False
    pool: Literal["tokens", "positions"] = "tokens"
    classifier_hidden_size: int = 128
    initializer_range: float = 0.02
    use_cache: bool = True
    tie_word_embeddings: bool = False
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        for unknown in kwargs:  # Transformers keeps any name; one that is almost ours is a slip
            if meant := get_close_matches(unknown, type(self).__annotations__, 1, cutoff=0.9):
                raise ValueError(f"MomentumConfig has no {unknown!r}: did you mean {meant[0]!r}?")
        self._describe()
        if self.intermediate_size is None:
            self.intermediate_size = 4 * self.hidden_size
        check_choice("block", self.block, tuple(BLOCKS))
        self.hidden_act = self.hidden_act or BLOCKS[self.block]["hidden_act"][0]  # type: ignore[assignment]
        for name, allowed in BLOCKS[self.block].items():
            check_choice(f"{name} of the {self.block} block", getattr(self, name), allowed)
        super().__post_init__(**kwargs)

    def validate_architecture(self) -> None:
        """Sizes that do not fit together are refused when the configuration is made."""
        width, heads = self.hidden_size, self.num_attention_heads
        if width < 1 or heads < 1 or width % heads:
            raise ValueError(f"hidden_size must be a multiple of num_attention_heads, not {width} for {heads}")
        if self.positions == "sinusoidal" and width % 4:
            raise ValueError(f"sinusoidal positions need a hidden_size that is a multiple of 4, not {width}")
        if self.positions == "sinusoidal" and self.tie_word_embeddings:
            raise ValueError(
                "sinusoidal positions take half of the width: embeddings cannot be tied to the output; with positions "
                "'added-sinusoidal' they can"
            )
        if self.positions == "added-sinusoidal" and width % 2:
            raise ValueError(f"sinusoidal positions need an even hidden_size, not {width}")

    @property
    def layer_types(self) -> list[str]:
        """The mixers in Transformers' words."""
        words = {"softmax": "full_attention", "window": "sliding_attention"}
        return [words.get(mixer["name"], "linear_attention") for mixer in self._each_mixer()]

    def encoder(self) -> Encoder:
        """The encoder that this configuration describes, with fresh weights."""
        self._describe()  # from_pretrained(path, mixers=...) sets what it is given as it is
        return Encoder(
            self.num_hidden_layers,
            self.hidden_size,
            self.num_attention_heads,
            attention=[made(mixer, MIXERS) for mixer in self.mixers],
            residual=made(self.residual, RESIDUALS),
            causal=self.causal,
            block=self._preset(),
            feedforward=self.intermediate_size,
            dropout=self.dropout,
            final_norm=self.final_norm,
        )

    def _describe(self) -> None:
        """Mixers, one for each layer, and the residual rule as plain values, however they were given."""
        self.mixers, self.residual = self._each_mixer(), described(self.residual, RESIDUALS)

    def _each_mixer(self) -> list[dict[str, Any]]:
        """One description a layer; a single mixer, or the one that all layers of a saved model have, is for all."""
        given, layers = self.mixers, self.num_hidden_layers
        each = list(given) if isinstance(given, list | tuple) else [given] * layers
        if len(each) > 1 and len(each) != layers and all(mixer == each[0] for mixer in each):
            each = each[:1] * layers
        if len(each) != layers:
            raise ValueError(f"mixers must be one, or one for each of {layers} layers, not {len(each)}")
        return [described(mixer, MIXERS) for mixer in each]

    def _preset(self) -> Preset:
        return ModernBlock() if self.block == "modern" else PaperBlock(self.norm, self.hidden_act)  # type: ignore[arg-type]

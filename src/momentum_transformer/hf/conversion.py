"""Models of ours as models of Transformers, and back: the same weights under other names, so the same logits."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from ..layers.block import Block, FeedForward, GatedFeedForward
from ..layers.residual import Residual
from ..layers.situation import Mixer
from ..models.classifier import SequenceClassifier
from ..models.encoder import Encoder
from ..models.language_model import LanguageModel
from .modeling import MomentumForCausalLM, MomentumForSequenceClassification
from .momentum_config import MomentumConfig
from .names import renamed

EMBEDDING = "model.embed_tokens.weight"
# prefixes of weights in our model, and in that of Transformers
LANGUAGE_MODEL = {"embedding.": "model.embed_tokens.", "encoder.": "model.encoder.", "logits.": "lm_head."}
CLASSIFIER = {
    "sequence.tokens.": "model.embed_tokens.",
    "sequence.positions.": "model.embed_positions.",
    "sequence.encoder.": "model.encoder.",
    "head.": "classifier.",
}


def to_transformers(
    model: nn.Module, mixers: list[Mixer], residual: Residual
) -> MomentumForCausalLM | MomentumForSequenceClassification:
    """A `LanguageModel` or `SequenceClassifier` as Transformers has it, with the same weights.

    Args:
        model: ours.
        mixers: those of its encoder, one for each layer.
        residual: that of its encoder.

    Returns:
        The model of Transformers, in evaluation mode.

    Examples:
        >>> model = LanguageModel(99, Encoder(2, 16, 2, attention=DeltaAttention()))
        >>> exported = to_transformers(model, [DeltaAttention()] * 2, PlainResidual())
    """
    if isinstance(model, LanguageModel):
        positions = "added-sinusoidal" if model.tied else "sinusoidal"
        options: dict[str, Any] = {
            "positions": positions if model.positions else "none",
            "scale_embedding": model.tied,
            "tie_word_embeddings": model.tied,
            "head_bias": not model.tied,
        }
        made: Any = MomentumForCausalLM(
            _config(model.encoder, mixers, residual, vocab_size=model.embedding.num_embeddings, **options)
        )
        prefixes = LANGUAGE_MODEL
    elif isinstance(model, SequenceClassifier):
        sequence, hidden, classes = model.sequence, model.head[0], model.head[-1]
        assert isinstance(hidden, nn.Linear)
        assert isinstance(classes, nn.Linear)
        options = {
            "positions": "learned",
            "max_position_embeddings": sequence.length,
            "pool": sequence.pool,
            "embedding_dropout": sequence.dropout.rate,
            "classifier_hidden_size": hidden.out_features,
            "num_labels": classes.out_features,
        }
        made = MomentumForSequenceClassification(
            _config(sequence.encoder, mixers, residual, vocab_size=sequence.tokens.num_embeddings, **options)
        )
        prefixes = CLASSIFIER
    else:
        raise ValueError(
            f"{type(model).__name__} has no counterpart in Transformers: language models and classifiers of one "
            "sequence have"
        )
    weights = _moved(renamed(model.state_dict()), prefixes)
    if made.config.tie_word_embeddings:
        weights["lm_head.weight"] = weights[EMBEDDING]
    made.to(next(model.parameters()).dtype).load_state_dict(weights)
    found: MomentumForCausalLM | MomentumForSequenceClassification = made.eval()
    return found


def to_native(model: nn.Module) -> LanguageModel | SequenceClassifier:
    """The inverse of `to_transformers`: our model with the same weights.

    A language model that is not tied and has no bias at its output gets one of zeros.

    Args:
        model: a `MomentumForCausalLM`, or a `MomentumForSequenceClassification`.

    Returns:
        The `LanguageModel` or `SequenceClassifier`, in evaluation mode.

    Examples:
        >>> config = MomentumConfig(vocab_size=99, hidden_size=16, num_hidden_layers=2, num_attention_heads=2)
        >>> model = to_native(MomentumForCausalLM(config))
    """
    made: LanguageModel | SequenceClassifier
    config: Any = getattr(model, "config", None)
    if isinstance(model, MomentumForCausalLM) and config.positions in _positions(config):
        prefixes = LANGUAGE_MODEL
        made = LanguageModel(
            config.vocab_size, config.encoder(), positions=config.positions != "none", tied=_tied_as_ours(config)
        )
    elif isinstance(model, MomentumForSequenceClassification) and config.positions == "learned":
        prefixes = CLASSIFIER
        made = SequenceClassifier(
            config.vocab_size,
            config.num_labels or 2,
            config.encoder(),
            length=config.max_position_embeddings,
            hidden=config.classifier_hidden_size,
            dropout=config.embedding_dropout,
            pool=config.pool,
        )
    else:
        raise ValueError(
            f"{type(model).__name__} with its positions has no counterpart here: language models have sinusoidal "
            "positions or none, classifiers learned ones"
        )
    weights = model.state_dict()
    if isinstance(made, LanguageModel) and made.tied:
        del weights["lm_head.weight"]
    elif config.scale_embedding:  # ours scales an embedding only where it is tied
        weights[EMBEDDING] = weights[EMBEDDING] * math.sqrt(weights[EMBEDDING].shape[1])
    weights = _moved(weights, {theirs: ours for ours, theirs in prefixes.items()})
    if isinstance(made, LanguageModel) and not made.tied:
        weights.setdefault("logits.bias", torch.zeros(config.vocab_size))
    made.to(next(model.parameters()).dtype).load_state_dict(renamed(weights, back=True))
    return made.eval()


def _tied_as_ours(config: MomentumConfig) -> bool:
    """Whether `LanguageModel(tied=True)` is this model."""
    return config.tie_word_embeddings and config.scale_embedding and not config.head_bias


def _positions(config: MomentumConfig) -> tuple[str, str]:
    """The choices of `positions` that a language model of ours has, too."""
    return ("none", "added-sinusoidal" if _tied_as_ours(config) else "sinusoidal")


def _config(encoder: Encoder, mixers: list[Mixer], residual: Residual, **options: Any) -> MomentumConfig:
    """Sizes are read from the encoder itself."""
    block: Any = encoder.blocks[0]
    return MomentumConfig(
        hidden_size=encoder.width,
        num_hidden_layers=len(encoder.blocks),
        num_attention_heads=block.attention.heads,
        mixers=mixers,
        residual=residual,
        dropout=block.dropout.rate,
        causal=encoder.causal,
        final_norm=not isinstance(encoder.final_norm, nn.Identity),
        **_kind_of(block),
        **options,
    )


def _kind_of(block: Block) -> dict[str, Any]:
    match block.feedforward, block.attention_norm:
        case FeedForward() as network, nn.LayerNorm():
            activation = "relu" if isinstance(network.activation, nn.ReLU) else "gelu"
            kind = {"block": "paper", "hidden_act": activation, "intermediate_size": network.enter.out_features}
        case GatedFeedForward() as network, nn.RMSNorm():  # with two thirds of the features
            kind = {"block": "modern", "intermediate_size": network.leave.in_features * 3 // 2}
        case network, norm:
            made_of = f"{type(norm).__name__} and {type(network).__name__}"
            raise ValueError(
                f"a block of {made_of} has no counterpart in Transformers: PaperBlock and ModernBlock have"
            )
    return {"norm": block.norm, **kind}


def _moved(weights: dict[str, Tensor], prefixes: dict[str, str]) -> dict[str, Tensor]:
    moved = {}
    for name, tensor in weights.items():
        before = next(prefix for prefix in prefixes if name.startswith(prefix))
        moved[prefixes[before] + name.removeprefix(before)] = tensor
    return moved

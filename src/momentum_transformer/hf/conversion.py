"""Models of ours as models of Transformers, and back: the same weights under other names, so the same logits."""

from typing import Any

import torch
from torch import Tensor, nn

from ..layers.residual import Residual
from ..layers.situation import Mixer
from ..models.classifier import SequenceClassifier
from ..models.encoder import Encoder
from ..models.language_model import LanguageModel
from .modeling import MomentumForCausalLM, MomentumForSequenceClassification
from .momentum_config import MomentumConfig
from .names import renamed

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
    """A `LanguageModel` or `SequenceClassifier` with these mixers and this residual rule, as Transformers has it."""
    if isinstance(model, LanguageModel):
        if model.tied:
            raise ValueError("its block is the modern one; --set model.block=paper trains one that can be")
        options: dict[str, Any] = {"positions": "sinusoidal" if model.positions else "none", "head_bias": True}
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
    made.load_state_dict(_moved(renamed(model.state_dict()), prefixes))
    found: MomentumForCausalLM | MomentumForSequenceClassification = made.to(next(model.parameters()).dtype).eval()
    return found


def to_native(model: nn.Module) -> LanguageModel | SequenceClassifier:
    """The inverse; a language model without a bias at its output gets one of zeros."""
    made: LanguageModel | SequenceClassifier
    if isinstance(model, MomentumForCausalLM) and model.config.positions != "learned":
        config, prefixes = model.config, LANGUAGE_MODEL
        made = LanguageModel(config.vocab_size, config.encoder(), positions=config.positions == "sinusoidal")
    elif isinstance(model, MomentumForSequenceClassification) and model.config.positions == "learned":
        config, prefixes = model.config, CLASSIFIER
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
    weights = _moved(model.state_dict(), {theirs: ours for ours, theirs in prefixes.items()})
    if isinstance(made, LanguageModel) and "logits.bias" not in weights:
        weights["logits.bias"] = torch.zeros(config.vocab_size)
    made.load_state_dict(renamed(weights, back=True))
    return made.to(next(model.parameters()).dtype).eval()


def _config(encoder: Encoder, mixers: list[Mixer], residual: Residual, **options: Any) -> MomentumConfig:
    """Sizes are read from the encoder itself."""
    block: Any = encoder.blocks[0]
    return MomentumConfig(
        hidden_size=encoder.width,
        num_hidden_layers=len(encoder.blocks),
        num_attention_heads=block.attention.heads,
        intermediate_size=block.feedforward.enter.out_features,
        mixers=mixers,
        residual=residual,
        norm=block.norm,
        hidden_act="relu" if isinstance(block.feedforward.activation, nn.ReLU) else "gelu",
        dropout=block.dropout.rate,
        causal=encoder.causal,
        final_norm=isinstance(encoder.final_norm, nn.LayerNorm),
        **options,
    )


def _moved(weights: dict[str, Tensor], prefixes: dict[str, str]) -> dict[str, Tensor]:
    moved = {}
    for name, tensor in weights.items():
        before = next(prefix for prefix in prefixes if name.startswith(prefix))
        moved[prefixes[before] + name.removeprefix(before)] = tensor
    return moved

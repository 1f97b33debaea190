"""Which mixers of Transformers run on our kernels, and what of each is exchanged: the names in this file are its."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from .causal_conv1d import causal_conv1d_fn, causal_conv1d_update
from .gated_delta import delta_rule, delta_step
from .gated_norm import gate_then_norm, norm_then_gate
from .lightning import lightning_attention
from .scalar_decay import chunk_scan, no_fused_path, selective_state_update

CONVOLUTION: dict[str, Callable[..., Any]] = {
    "causal_conv1d_fn": causal_conv1d_fn,
    "causal_conv1d_update": causal_conv1d_update,
}


@dataclass(frozen=True)
class Kind:
    """Mixers with one recurrence.

    Args:
        name: of the recurrence, for people.
        state: the mixer's attributes that are the shape of its state, heads first.
        functions: ours, by the name that the mixer's module gives to Transformers' own.
        norm: the forward of the gated norm behind the mixer.
        forward: ours instead of the mixer's own, where that calls no kernel function.
    """

    name: str
    state: tuple[str, str, str]
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    norm: Callable[..., Any] | None = None
    forward: Callable[..., Any] | None = None


GATED_DELTA = Kind(
    "gated delta rule",
    ("num_v_heads", "head_k_dim", "head_v_dim"),
    {"torch_chunk_gated_delta_rule": delta_rule, "torch_recurrent_gated_delta_rule": delta_step, **CONVOLUTION},
    norm_then_gate,
)
CHANNEL_DELTA = Kind(
    "delta rule with a decay for each channel (KDA)",
    ("num_heads", "head_dim", "head_dim"),
    {"chunk_kimi_delta_attention": delta_rule, "recurrent_kimi_delta_attention": delta_step, **CONVOLUTION},
    norm_then_gate,
)
SCALAR_DECAY = Kind(
    "scalar decay (Mamba-2)",
    ("num_heads", "head_dim", "ssm_state_size"),
    {
        "mamba2_chunk_scan": chunk_scan,
        "mamba2_selective_state_update": selective_state_update,
        "mamba2_split_conv1d_scan_combined": no_fused_path,
        **CONVOLUTION,
    },
    gate_then_norm,
)
LIGHTNING = Kind("lightning attention", ("num_attention_heads", "head_dim", "head_dim"), forward=lightning_attention)

# by the mixer's class, in the module transformers.models.A.modeling_A of its architecture A
MIXERS: dict[tuple[str, str], Kind] = {
    ("qwen3_next", "Qwen3NextGatedDeltaNet"): GATED_DELTA,
    ("qwen3_5", "Qwen3_5GatedDeltaNet"): GATED_DELTA,
    ("qwen3_5_moe", "Qwen3_5MoeGatedDeltaNet"): GATED_DELTA,
    ("qwen4_exp", "Qwen4ExpTextGatedDeltaNet"): GATED_DELTA,
    ("olmo_hybrid", "OlmoHybridGatedDeltaNet"): GATED_DELTA,
    ("kimi_linear", "KimiLinearDeltaAttention"): CHANNEL_DELTA,
    ("bailing_hybrid", "BailingHybridDeltaAttention"): CHANNEL_DELTA,
    ("glm5_next", "Glm5NextTextLinearAttention"): CHANNEL_DELTA,
    ("mamba2", "Mamba2Mixer"): SCALAR_DECAY,
    ("bamba", "BambaMixer"): SCALAR_DECAY,
    ("falcon_h1", "FalconH1Mixer"): replace(SCALAR_DECAY, norm=None),  # it drops the axis of a single token
    ("granitemoehybrid", "GraniteMoeHybridMambaLayer"): SCALAR_DECAY,
    ("nemotron_h", "NemotronHMamba2Mixer"): SCALAR_DECAY,
    ("zamba2", "Zamba2MambaMixer"): SCALAR_DECAY,
    ("minimax", "MiniMaxLightningAttention"): LIGHTNING,
}
ARCHITECTURES = tuple(architecture for architecture, _ in MIXERS)
UNPARTED = ("granitemoehybrid", "glm5_next")  # their softmax layers see all documents of a row
KEEPS_PACKING = (("mamba2", "Mamba2ForCausalLM"),)  # models that do not hand on what tells packed documents apart


def mixer_class(mixer: nn.Module) -> tuple[type[nn.Module], Kind] | None:
    """The class of Transformers that a module is or inherits from, and its kind; None where it is no mixer of ours."""
    for base in type(mixer).__mro__:
        kind = MIXERS.get(_named(base))
        if kind is not None:
            return base, kind
    return None


def kind_of(base: type[nn.Module]) -> Kind | None:
    """The kind of a class of Transformers."""
    return MIXERS.get(_named(base))


def keeps_packing(model: nn.Module) -> bool:
    """Whether a model keeps to itself what tells packed documents apart."""
    return any(_named(base) in KEEPS_PACKING for base in type(model).__mro__)


def _named(base: type) -> tuple[str, str]:
    """A class's architecture and name; no architecture where it is not of Transformers."""
    path = base.__module__.split(".")
    known = path[:2] == ["transformers", "models"] and len(path) > 2
    return path[2] if known else "", base.__name__

"""Our models under Transformers' Auto classes."""

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification

from .modeling import MomentumForCausalLM, MomentumForSequenceClassification, MomentumModel
from .momentum_config import MomentumConfig


def register() -> None:
    """Make AutoConfig and the Auto models know `model_type` "momentum"; calling it again does no harm."""
    AutoConfig.register(MomentumConfig.model_type, MomentumConfig, exist_ok=True)
    AutoModel.register(MomentumConfig, MomentumModel, exist_ok=True)
    AutoModelForCausalLM.register(MomentumConfig, MomentumForCausalLM, exist_ok=True)
    AutoModelForSequenceClassification.register(MomentumConfig, MomentumForSequenceClassification, exist_ok=True)

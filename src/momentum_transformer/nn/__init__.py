"""Linear-time attention under the names and arguments of torch.nn, for models that were written for these."""

from .dot_product import scaled_dot_product_attention
from .transformer_encoder import TransformerEncoder, TransformerEncoderLayer

__all__ = ["TransformerEncoder", "TransformerEncoderLayer", "scaled_dot_product_attention"]

"""How large a model is: its parameters, and what it remembers of a sequence."""

from functools import lru_cache

import torch
from torch.utils._pytree import tree_leaves

from ..models.language_model import LanguageModel
from . import EXPERIMENTS
from .runs import Request


@lru_cache(maxsize=1024)
def parameter_count(request: Request) -> int:
    """The parameters of the whole model, counted on one that is built without memory."""
    with torch.device("meta"):
        model = EXPERIMENTS[request.experiment].task(request.config, request.seed).model
    return sum(parameter.numel() for parameter in model.parameters())


@lru_cache(maxsize=1024)
def state_bytes(request: Request, tokens: int) -> int:
    """What a language model keeps of one sequence after `tokens` tokens, in all layers together."""
    model = EXPERIMENTS[request.experiment].task(request.config, request.seed).model
    if not isinstance(model, LanguageModel):
        raise ValueError(f"{request.experiment} has no language model, whose state could be measured")
    with torch.no_grad():
        _, state = model.prefill(torch.zeros(1, tokens, dtype=torch.long))
    return sum(leaf.nbytes for leaf in tree_leaves(state.encoder) if isinstance(leaf, torch.Tensor))

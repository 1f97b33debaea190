"""What a model remembers while Transformers generates: one state of its encoder, as small as its mixers have it."""

from collections.abc import Callable
from copy import copy
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from ..models.encoder import Encoder, EncoderState
from ..models.rewind import Rewind, RewindState
from ..ops.state import map_state, reorder_state

ROLLBACK = 256  # tokens that can be taken back, or more where Transformers guesses more


class MomentumCache(Cache):
    """An encoder's state behind the interface of Transformers' caches: reordered, repeated, selected, and cropped.

    `crop(-k)` takes the last k tokens back, exactly; it needs `activate_past_recording()` before those tokens, as
    Transformers does for assisted decoding.

    Examples:
        >>> config = MomentumConfig(vocab_size=99, hidden_size=16, num_hidden_layers=2, num_attention_heads=2)
        >>> model, cache = MomentumForCausalLM(config).eval(), MomentumCache()
        >>> logits = model(torch.randint(99, (3, 50)), past_key_values=cache, use_cache=True).logits
        >>> logits = model(torch.randint(99, (3, 1)), past_key_values=cache, use_cache=True).logits  # one more token
    """

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.recording = False
        self.rollback = ROLLBACK
        self.rewind: Rewind | None = None
        self.state: EncoderState | RewindState | None = None
        self.position: Tensor | None = None  # (b,) of the next token, among those that exist
        self.length = 0  # columns, with those that do not exist

    def advance(self, encoder: Encoder, x: Tensor, mask: Tensor | None, *, whole: bool = False) -> Tensor:
        """y of the next tokens x (b, n, width), of which only those exist where `mask` is True or None.

        With `whole` all of them go through each block at once, for those who record what a block gives.
        """
        if self.position is not None and len(self.position) != len(x):
            raise ValueError(f"this cache is of a batch of {len(self.position)}, not {len(x)}; make a new one")
        if self.recording:
            # guesses come with the token before them, and those with the prompt are as many as `allow` was told
            all_at_once = whole or self.is_initialized
            self.rewind = Rewind(encoder, keep=max(self.rollback, x.shape[1] if all_at_once else 0))
            y, self.state = self.rewind(x, self.state, key_mask=mask)
        else:
            state = self.state.encoder if isinstance(self.state, RewindState) else self.state
            y, self.state = encoder(x, key_mask=mask, state=state, return_state=True)
        count = x.shape[1] if mask is None else mask.sum(1)
        before = torch.zeros(len(x), dtype=torch.long, device=x.device) if self.position is None else self.position
        self.position = before + count
        self.length += x.shape[1]
        return y

    def reset(self) -> None:
        self.state, self.position, self.length = None, None, 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.length

    def get_max_length(self, layer_idx: int | None = None) -> int:
        return -1  # no longest sequence

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        return self.length + query_length, 0

    def has_previous_state(self, layer_idx: int | None = None, state_idx: int | None = None) -> bool:
        return self.length > 0

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self._map(lambda tensor: reorder_state(tensor, beam_idx))

    def batch_repeat_interleave(self, repeats: int) -> None:
        self._map(lambda tensor: tensor.repeat_interleave(repeats, 0))

    def batch_select_indices(self, indices: Tensor) -> None:
        self._map(lambda tensor: tensor[indices.to(tensor.device)])

    def activate_past_recording(self) -> None:
        self.recording = True

    def allow(self, tokens: int) -> None:
        """From now on at least so many tokens can be taken back."""
        self.rollback = max(self.rollback, tokens)

    def is_recording_past(self, layer_idx: int = 0) -> bool:
        return self.recording

    def crop(self, tokens_to_remove: int) -> None:
        """Take the last `-tokens_to_remove` tokens back."""
        count = -tokens_to_remove
        if count < 0:
            raise ValueError(f"crop takes minus the number of tokens to take back, not {tokens_to_remove}")
        if count == 0:
            return
        if not isinstance(self.state, RewindState) or self.rewind is None or self.position is None:
            raise ValueError(
                "this cache keeps no tokens to go back: call activate_past_recording() before the model sees them"
            )
        before = self.state.mask.sum(1)
        self.state = self.rewind.back(self.state, count)
        self.position = self.position - before + self.state.mask.sum(1)
        self.length -= count

    @property
    def batch_size(self) -> int:
        return -1 if self.position is None else len(self.position)

    @property
    def is_initialized(self) -> bool:
        return self.state is not None

    @property
    def is_compileable(self) -> bool:
        return False

    @property
    def is_croppable(self) -> bool:
        return True

    def update(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("a MomentumCache takes whole states, not keys and values: it serves our models only")

    def __len__(self) -> int:
        state = self.state.encoder if isinstance(self.state, RewindState) else self.state
        return 0 if state is None else len(state.layers)

    def __repr__(self) -> str:
        return f"MomentumCache({len(self)} layers, {self.length} tokens)"

    def __deepcopy__(self, memo: dict[int, Any]) -> "MomentumCache":
        return copy(self)  # states are immutable, and the encoder that made them is not the cache's to copy

    def _map(self, function: Callable[[Tensor], Tensor]) -> None:
        self.state = map_state(function, self.state)
        if self.position is not None:
            self.position = function(self.position)

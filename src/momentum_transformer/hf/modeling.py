"""Our encoder as models of Transformers: what tokens come in and what comes out; everything between is the encoder."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import (
    BaseModelOutputWithPast,
    CausalLMOutputWithPast,
    SequenceClassifierOutputWithPast,
)
from transformers.utils.generic import can_return_tuple
from transformers.utils.output_capturing import capture_outputs

from ..layers.block import Block
from ..layers.linear_layer import Linear
from ..layers.positions import sinusoids
from ..models.classifier import head, pooled
from .encoder_cache import MomentumCache
from .inputs import NO_CACHE, check_places, checked_cache, document_starts, existing, places_of
from .momentum_config import MomentumConfig
from .names import with_names


class MomentumPreTrainedModel(PreTrainedModel):
    config_class = MomentumConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    # Transformers reads these from the class
    _no_split_modules = ["Block"]  # noqa: RUF012
    _skip_keys_device_placement = ["past_key_values"]  # noqa: RUF012
    _can_record_outputs = {"hidden_states": Block}  # noqa: RUF012

    def init_weights(self) -> None:
        """Constructors have set every weight already; what is tied is tied."""
        self.tie_weights(recompute_mapping=False)

    @torch.no_grad()
    def initialize_weights(self) -> None:
        """What a checkpoint did not have starts as in a model made afresh."""
        fresh = None
        for name, tensor in self.named_parameters():
            if getattr(tensor, "_is_hf_initialized", False):
                continue
            with torch.device("cpu"):
                fresh = fresh or type(self)(self.config)
            tensor.copy_(fresh.get_parameter(name))


class MomentumModel(MomentumPreTrainedModel):
    """Tokens in, what the encoder makes of them out.

    A token whose `attention_mask` is 0 does not exist, wherever it stands: the others get what they get without it.

    Args:
        config: what the model is made of.

    Examples:
        >>> config = MomentumConfig(vocab_size=99, hidden_size=16, num_hidden_layers=2, num_attention_heads=2)
        >>> y = MomentumModel(config)(torch.randint(99, (3, 50))).last_hidden_state
    """

    def __init__(self, config: MomentumConfig) -> None:
        super().__init__(config)
        width = config.hidden_size
        self.embed_tokens = nn.Embedding(config.vocab_size, width // 2 if config.positions == "sinusoidal" else width)
        self.embed_positions = None
        if config.positions == "learned":
            self.embed_positions = nn.Embedding(config.max_position_embeddings, width)
        for embedding in filter(None, (self.embed_tokens, self.embed_positions)):
            nn.init.normal_(embedding.weight, std=config.initializer_range)
        self.dropout = nn.Dropout(config.embedding_dropout)
        self.encoder = with_names(config.encoder())
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.embed_tokens = value  # type: ignore[assignment]  # a module in its place

    @can_return_tuple  # type: ignore[untyped-decorator]
    @capture_outputs  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: MomentumCache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        """Args:
        attention_mask: (b, n) or (b, earlier tokens + n), 0 where a token does not exist.
        past_key_values: what earlier calls left behind; it is carried on in place.
        use_cache: whether to return such a memory; by default as the configuration says, but not while training, nor
            for packed documents.
        kwargs: `position_ids` that begin again, `cu_seq_lens_q` or `seq_idx` tell packed documents apart, as
            Transformers' collators give them.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give one of input_ids and inputs_embeds")
        x = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        position_ids = kwargs.get("position_ids")
        mask = existing(attention_mask, x)
        reset = document_starts(
            x,
            mask,
            position_ids=position_ids,
            boundaries=kwargs.get("cu_seq_lens_q"),
            seq_idx=kwargs.get("seq_idx"),
            cached=past_key_values is not None or bool(use_cache),
        )
        if use_cache is None:
            use_cache = self.config.use_cache and self.config.causal and reset is None and not self.training
        cache = checked_cache(past_key_values, use_cache)
        before = None if cache is None else cache.position
        x = self._placed(x, places_of(x, mask, position_ids, before=before, reset=reset))
        if cache is None:
            y = self.encoder(x, key_mask=mask, reset=reset)
        elif reset is not None:
            raise ValueError(NO_CACHE)
        else:
            recorded = kwargs.get("output_hidden_states", self.config.output_hidden_states)
            y = cache.advance(self.encoder, x, mask, whole=bool(recorded))
        return BaseModelOutputWithPast(last_hidden_state=y, past_key_values=cache if use_cache else None)

    def _placed(self, x: Tensor, places: Tensor) -> Tensor:
        """Tokens with what says where they stand."""
        if self.config.scale_embedding:
            x = x * math.sqrt(x.shape[-1])
        match self.config.positions:
            case "sinusoidal":
                place = sinusoids(places, x.shape[-1]).to(x.dtype)
                x = torch.cat([x, place.expand(*x.shape[:-1], -1)], -1)
            case "added-sinusoidal":
                x = x + sinusoids(places, x.shape[-1]).to(x.dtype)
            case "learned":
                assert self.embed_positions is not None
                check_places(places, self.embed_positions.num_embeddings)
                x = x + self.embed_positions(places)
        placed: Tensor = self.dropout(x)
        return placed


class MomentumForCausalLM(MomentumPreTrainedModel, GenerationMixin):
    """Tokens in, logits of the next token out; `generate` runs on a `MomentumCache`.

    Args:
        config: what the model is made of.

    Examples:
        >>> config = MomentumConfig(vocab_size=99, hidden_size=16, num_hidden_layers=2, num_attention_heads=2)
        >>> tokens = MomentumForCausalLM(config).generate(torch.randint(99, (3, 50)), max_new_tokens=2)
    """

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config: MomentumConfig) -> None:
        super().__init__(config)
        if not config.causal:
            raise ValueError("a language model needs MomentumConfig(causal=True)")
        self.model = MomentumModel(config)
        self.lm_head = Linear(config.hidden_size, config.vocab_size, bias=config.head_bias)
        self.post_init()

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: MomentumCache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """The arguments of `MomentumModel.forward`, and:

        labels: (b, n) the tokens themselves; -100 where they do not count.
        logits_to_keep: of how many last tokens, or of which ones, logits are wanted; 0 is all.
        """
        found = self.model(
            input_ids,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(found.last_hidden_state[:, kept])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        return CausalLMOutputWithPast(
            loss=loss, logits=logits, past_key_values=found.past_key_values, hidden_states=found.hidden_states
        )

    def _prepare_cache_for_generation(  # type: ignore[override]
        self, generation_config: Any, model_kwargs: dict[str, Any], *arguments: Any
    ) -> None:
        """A cache of our own in place of Transformers' default."""
        if model_kwargs.get("past_key_values") is None and generation_config.use_cache is not False:
            if generation_config.cache_implementation not in (None, "dynamic"):
                raise ValueError(
                    f"cache_implementation must be left out, not {generation_config.cache_implementation!r}: this "
                    "model has a cache of its own, as small as its mixers allow"
                )
            cache = model_kwargs["past_key_values"] = MomentumCache()
            if generation_config.is_assistant:
                cache.activate_past_recording()
            return
        super()._prepare_cache_for_generation(generation_config, model_kwargs, *arguments)  # type: ignore[misc]

    def _get_candidate_generator(self, **arguments: Any) -> Any:  # type: ignore[override]  # it is called by names
        """As many guesses as come at once can be taken back."""
        made = super()._get_candidate_generator(**arguments)  # type: ignore[misc]
        cache = arguments["model_kwargs"].get("past_key_values")
        if isinstance(cache, MomentumCache):
            guesses = (getattr(made, name, 0) for name in ("num_output_tokens", "num_assistant_tokens"))
            cache.allow(max(int(count) for count in guesses))
        return made


class MomentumForSequenceClassification(MomentumPreTrainedModel):
    """Tokens in, logits of the classes of a sequence out: the mean over the tokens that exist, then two layers.

    Args:
        config: what the model is made of; `num_labels` says how many classes.

    Examples:
        >>> sizes = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2)
        >>> config = MomentumConfig(vocab_size=99, num_labels=5, **sizes)
        >>> logits = MomentumForSequenceClassification(config)(torch.randint(99, (3, 50))).logits
    """

    def __init__(self, config: MomentumConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = MomentumModel(config)
        self.classifier = head(config.hidden_size, config.classifier_hidden_size, config.num_labels or 2)
        self.post_init()

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutputWithPast:
        """The arguments of `MomentumModel.forward`, and labels (b,)."""
        kwargs = {**kwargs, "use_cache": False}
        found = self.model(input_ids, attention_mask=attention_mask, inputs_embeds=inputs_embeds, **kwargs)
        y = found.last_hidden_state
        logits = self.classifier(pooled(y, existing(attention_mask, y), self.config.pool))
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config, logits=logits)
        return SequenceClassifierOutputWithPast(loss=loss, logits=logits, hidden_states=found.hidden_states)

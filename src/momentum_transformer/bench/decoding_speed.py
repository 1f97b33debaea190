"""Tokens per second and bytes of state against the length of the context, one token at a time.

    python -m momentum_transformer.bench.decoding_speed --out results/contexts.json

Language models of the same size, untrained, decode in place on one thread. A context is not run through: a softmax
layer gets a key-value cache of so many random keys and values, a recurrence a random state, since their size decides
the time, not their content. Models take turns, the best of several rounds counts, in the processor's time; nothing is
timed unless decoding agrees with the parallel form.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..decoding.decoder import Decoder
from ..experiments.model_config import named
from ..models.encoder import EncoderState
from ..models.language_model import LanguageModel
from ..ops.state import CacheState, map_state, state_tensors
from .record import record, save
from .timing import processor_seconds

MODELS = ("softmax", "momentum", "gated-delta", "hybrid")
CONTEXTS = tuple(1024 * 2**i for i in range(8))
SIZES = {"depth": 4, "width": 256, "heads": 4, "feedforward": 1024}
VOCABULARY = 256
STEPS = 8  # timed in a row
AGREES = 1e-3


def language_model(name: str) -> LanguageModel:
    torch.manual_seed(0)
    config = named(name, {**SIZES, "block": "modern", "dropout": 0.0, "attention_dropout": 0.0})
    return LanguageModel(VOCABULARY, config.encoder(causal=True), positions=False, tied=True).eval()


@torch.inference_mode()
def check(model: LanguageModel) -> None:
    """Decoding is the parallel form, or nothing is timed."""
    tokens = torch.randint(VOCABULARY, (1, 48))
    _, state = model.prefill(tokens[:, :16])
    decoder = Decoder(model.encoder, state.encoder, max_new_tokens=32, head=model.head_weights())
    steps = [decoder.step(embedded(model, tokens[:, i])) for i in range(16, 48)]
    if not torch.allclose(torch.stack(steps, 1), model(tokens)[:, 16:], atol=AGREES):
        raise SystemExit("decoding does not equal the parallel form; nothing was timed")


def embedded(model: LanguageModel, token: Tensor) -> Tensor:
    return model.embed(token, torch.zeros(1, dtype=torch.long))


def state_at(model: LanguageModel, context: int) -> EncoderState:
    """A state as large as after so many tokens, of random content."""
    layers = []
    for layer in model.encoder.initial_state(1).layers:
        if isinstance(layer, CacheState):
            shape = (1, layer.k.shape[1], context, layer.k.shape[3])
            layers.append(CacheState(torch.randn(shape), torch.randn(shape), torch.ones(1, context, dtype=torch.bool)))
        else:
            layers.append(map_state(lambda x: torch.randn_like(x).abs(), layer))
    return EncoderState(tuple(layers))


@torch.inference_mode()
def seconds_a_token(model: LanguageModel, decoder: Decoder) -> float:
    token = torch.zeros(1, dtype=torch.long)
    start = processor_seconds()
    for _ in range(STEPS):
        token = decoder.step(embedded(model, token)).argmax(-1)
    return (processor_seconds() - start) / STEPS


def measure(
    models: Sequence[str], contexts: Sequence[int], rounds: int, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """The best of the rounds; models take turns at each length."""
    made = {name: language_model(name) for name in models}
    for model in made.values():
        check(model)
    rows = []
    for context in contexts:
        decoders, size = {}, {}
        for name, model in made.items():
            state = state_at(model, context)
            size[name] = sum(tensor.nbytes for tensor in state_tensors(state).values())
            decoders[name] = Decoder(
                model.encoder, state, max_new_tokens=STEPS * (rounds + 1), head=model.head_weights()
            )
            seconds_a_token(model, decoders[name])  # the first touch of memory is not timed
        times: dict[str, list[float]] = {name: [] for name in made}
        for _ in range(rounds):
            for name, model in made.items():
                times[name].append(seconds_a_token(model, decoders[name]))
        for name, seconds in ((name, min(found)) for name, found in times.items()):
            row = {"model": name, "context": context, "tokens_per_second": 1 / seconds, "state_bytes": size[name]}
            rows.append(row)
            say(f"{name} at {context:,}: {1 / seconds:,.0f} tokens/s, {size[name]:,} bytes")
        del decoders
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument("--contexts", nargs="+", type=int, default=CONTEXTS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = measure(given.models, given.contexts, given.rounds, print)
    what = f"modern blocks, {', '.join(f'{name} {size}' for name, size in SIZES.items())}, batch 1, float32"
    meaning = f"best of {given.rounds} rounds of {STEPS} tokens, the processor's time of one thread"
    save(record("decoding_speed", what, meaning, rows), given.out)


if __name__ == "__main__":
    main()

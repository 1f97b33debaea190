"""Tokens per second of the translators: without order, by refinement, against word by word with a cache.

    python -m momentum_transformer.bench.translation_speed --out results/translation.json

Untrained models of one experiment and scale translate random sentences. Every model writes as many tokens as it reads,
so that all of them do the same work; models take turns, and the best of several rounds counts.
"""

import argparse
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from ..data.subwords import END
from ..experiments.runs import Request
from ..experiments.translation.translation_scales import TEACHER, TRANSLATION_MODELS
from ..experiments.translation.translation_task import make_translator
from ..generation.sentences import translate, translate_greedily
from ..models.autoregressive_translator import AutoregressiveTranslator
from ..models.nonautoregressive_translator import NonAutoregressiveTranslator
from ..training.allocator import keep_freed_memory
from .record import machine, save

LENGTHS = (16, 32, 64, 128, 256, 512)
BATCHES = (1, 64)
SPEAKING_LENGTH = 16  # of the sentences whose speed is compared
Model = NonAutoregressiveTranslator | AutoregressiveTranslator


def untrained(experiment: str, scale: str) -> dict[str, Model]:
    """Every model with the weights of seed 0; the word-by-word model never ends a sentence by itself."""
    models: dict[str, Model] = {}
    for name in TRANSLATION_MODELS:
        torch.manual_seed(0)
        model = make_translator(Request(experiment, name, scale).config).eval()
        if isinstance(model, AutoregressiveTranslator):
            with torch.no_grad():
                model.decoder.embedding[END] = 0
        models[name] = model
    return models


def check(models: dict[str, Model]) -> None:
    """A sentence is translated as in a batch with longer ones, or nothing is timed."""
    source = torch.randint(4, 100, (2, 9), generator=torch.Generator().manual_seed(0))
    mask = torch.arange(9) < torch.tensor([9, 5])[:, None]
    for name, model in models.items():
        lengths = torch.tensor([9, 5])
        together = run(model.double(), source.where(mask, 1), mask, lengths)[1, :5]
        alone = run(model, source[1:, :5], mask[1:, :5], lengths[1:])[0]
        model.float()
        if not torch.equal(together, alone):
            raise SystemExit(f"{name} translates a sentence differently beside a longer one; nothing was timed")


def run(model: Model, source: Tensor, mask: Tensor, lengths: Tensor, refinements: int = 4) -> Tensor:
    if isinstance(model, AutoregressiveTranslator):
        return translate_greedily(model, source, mask, limit=int(lengths.max()))[0]
    return translate(model, source, mask, steps=refinements, lengths=lengths)[0]


def seconds(model: Model, batch: int, length: int, refinements: int) -> float:
    source = torch.randint(4, 100, (batch, length), generator=torch.Generator().manual_seed(length))
    mask, lengths = torch.ones_like(source, dtype=torch.bool), torch.full((batch,), length)
    started = time.perf_counter()
    written = run(model, source, mask, lengths, refinements)
    taken = time.perf_counter() - started
    if written.shape != source.shape:
        raise SystemExit(
            f"a model wrote {tuple(written.shape)} tokens, not {tuple(source.shape)}; nothing is comparable"
        )
    return taken


def measure(models: dict[str, Model], *, lengths: list[int], rounds: int, refinements: int) -> list[dict[str, Any]]:
    """Every model by turns. The best round of each counts; against linear, the median of ratios within a round."""
    taken: dict[tuple[str, int, int], list[float]] = {}

    def take_turns(names: list[str], batch: int, length: int, rounds: int) -> None:
        for number in range(rounds + 1):  # the first round warms up, and counts too: it is never the best
            first = number % len(names)  # rotate the order, so that no model always follows the same one
            for name in (*names[first:], *names[:first]):
                spent = seconds(models[name], batch, length, refinements)
                taken.setdefault((name, batch, length), []).append(spent)

    for batch in BATCHES:
        take_turns(list(models), batch, SPEAKING_LENGTH, 24 * rounds if batch == 1 else 8 * rounds)
    for length in lengths:
        take_turns([name for name in models if name != TEACHER], 8, length, rounds)
    return [
        {
            "model": name,
            "batch": batch,
            "length": length,
            "seconds": min(every),
            "tokens_per_second": batch * length / min(every),
            "speed_to_linear": median(a / b for a, b in zip(taken["linear", batch, length], every, strict=True)),
        }
        for (name, batch, length), every in taken.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the figures there as JSON")
    parser.add_argument("--experiment", default="multi30k")
    parser.add_argument("--scale", default="small")
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS))
    parser.add_argument("--rounds", type=int, default=8)
    arguments = parser.parse_args()
    refinements = Request(arguments.experiment, "momentum", arguments.scale).config.refine.decoding
    keep_freed_memory()  # as `momentum translate` does
    models = untrained(arguments.experiment, arguments.scale)
    check(models)
    rows = measure(models, lengths=arguments.lengths, rounds=arguments.rounds, refinements=refinements)
    for row in rows:
        print(
            f"{row['model']:>20} batch {row['batch']:>2} of {row['length']:>3} tokens: "
            f"{row['tokens_per_second']:8,.0f} tokens/s, {1000 * row['seconds']:8.1f} ms"
        )
    result = {
        "command": "python -m momentum_transformer.bench.translation_speed",
        "machine": machine(),
        "what": f"{arguments.experiment} at scale {arguments.scale}, untrained, {refinements} refinements, float32",
        "meaning": f"best of {arguments.rounds} interleaved rounds, of 24 and 8 times as many at batch 1 and 64; "
        "source tokens, as many target tokens are written; against linear, medians of ratios within a round",
        "rows": rows,
    }
    save(result, arguments.out)


if __name__ == "__main__":
    main()

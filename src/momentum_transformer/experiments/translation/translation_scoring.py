"""BLEU, chrF and tokens per second of a trained translator on the test text, and translations to look at."""

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...bounded import MEGABYTE, UNREADABLE, numbered_lines, parse_json
from ...durable import make_folder, replace_file
from ...generation.translation_scores import score
from ...training.run_directory import RunError
from .text_translator import Translator

if TYPE_CHECKING:
    from .translation_task import TranslationTask

MOST_BYTES = MEGABYTE  # of steps.jsonl
SHOWN = 8  # translations kept step by step
ALONE = 50  # sentences translated one by one, to time them
BATCHES = (1_024, 4_096, 16_384)  # tokens; the fastest counts


def score_translations(task: "TranslationTask", folder: Path) -> list[dict[str, Any]]:
    """Metrics of the test text; translations go to test.txt and, step by step, to steps.jsonl."""
    text = task.text.test
    translator = Translator(task)
    subwords = translator.subwords
    sources = subwords.encode_sources(text.sources)
    targets = subwords.encode_targets(text.targets)
    results = translator.pieces(sources)
    tokenized = [subwords.tokenize_target(line) for line in text.targets]

    def line_of(results: list[tuple[tuple[int, ...], ...]], step: int) -> dict[str, Any]:
        pieces = [list(steps[min(step, len(steps) - 1)]) for steps in results]
        scores = score(
            [subwords.text(row) for row in pieces],
            text.targets,
            tokenized=([subwords.tokens(row) for row in pieces], tokenized),
        )
        return {"kind": "translation", "refinements": step, **vars(scores)}

    depth = max(map(len, results))
    lines = [{**line_of(results, step), "lengths": "predicted"} for step in range(depth)]
    if task.config.decoder != "autoregressive":
        known = translator.pieces(sources, lengths=[len(target) + 1 for target in targets])  # with END
        lines.append({**line_of(known, depth - 1), "lengths": "reference"})
    make_folder(folder)
    _write_lines(folder / "test.txt", (subwords.text(list(steps[-1])) for steps in results))
    shown = [
        {
            "source": text.sources[i],
            "reference": text.targets[i],
            "steps": [subwords.text(list(step)) for step in results[i]],
        }
        for i in _spread(len(text), SHOWN)
    ]
    _write_lines(folder / "steps.jsonl", map(json.dumps, shown))
    return [*lines, *throughput(translator, sources)]


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    replace_file(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def read_steps(path: Path) -> list[dict[str, Any]]:
    """What `steps.jsonl` keeps: sources, references, and each translation step by step."""
    try:
        lines = [parse_json(line) for _, line in numbered_lines(path, MOST_BYTES, MOST_BYTES)]
    except (ValueError, *UNREADABLE) as error:
        raise RunError(f"{path} cannot be read: {error}") from None
    for number, line in enumerate(lines, start=1):
        words = [line.get("source"), line.get("reference")] if isinstance(line, dict) else [None]
        steps = line.get("steps") if isinstance(line, dict) else None
        if not isinstance(steps, list) or not all(isinstance(text, str) for text in (*words, *steps)):
            raise RunError(f"{path} line {number} is no source, reference and steps")
    return lines


def throughput(translator: Translator, sources: list[list[int]]) -> list[dict[str, Any]]:
    """Source and target pieces per second, one sentence at a time and at the best of a few batch sizes."""
    translator.pieces(sources[:2])  # what is made at the first call
    alone = [sources[i] for i in _spread(len(sources), ALONE)]
    lines = [_timed(translator, alone, 1)]
    return [*lines, max((_timed(translator, sources, tokens) for tokens in BATCHES), key=lambda line: line["source"])]


def _timed(translator: Translator, sources: list[list[int]], tokens: int) -> dict[str, Any]:
    started = time.perf_counter()
    results = translator.pieces(sources, tokens=tokens)
    seconds = time.perf_counter() - started
    produced = sum(len(translator.subwords.cut(steps[-1])) for steps in results)
    return {
        "kind": "throughput",
        "batch_tokens": tokens,
        "sentences": len(sources),
        "source": sum(map(len, sources)) / seconds,
        "target": produced / seconds,
    }


def _spread(count: int, wanted: int) -> list[int]:
    """Numbers below `count`, evenly spread."""
    wanted = min(count, wanted)
    return [i * count // wanted for i in range(wanted)]

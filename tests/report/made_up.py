"""What the end of a training leaves in a run directory, made up."""

import json

import numpy as np

from momentum_transformer.training.run_directory import RunDirectory


def add_translations(run: RunDirectory, model: str, rng: np.random.Generator, *, bleu: float = 10.0) -> None:
    """Scores after each of two refinements, speeds, and one sentence step by step."""
    alone = model == "autoregressive"
    signatures = {"bleu_signature": "made up", "chrf_signature": "made up"}
    for step in range(1 if alone else 3):
        score = bleu + step + float(rng.random())
        scores = {"bleu": score, "chrf": 2 * score, "tokenized_bleu": score + 1, **signatures}
        run.append_metrics({"kind": "translation", "refinements": step, **scores, "lengths": "predicted"})
    if not alone:
        run.append_metrics({"kind": "translation", "refinements": 2, **scores, "lengths": "reference"})
    for batch, speed in ((1, 100.0), (4096, 5000.0)):
        line = {"batch_tokens": batch, "sentences": 50, "source": speed * (1 if alone else 2), "target": speed}
        run.append_metrics({"kind": "throughput", **line})
    steps = ["Ein Hund ."] if alone else ["Ein ein .", "Ein Hund .", "Ein Hund ."]
    (run.path / "samples").mkdir()
    shown = {"source": "A dog <b>.", "reference": "Ein Hund .", "steps": steps}
    (run.path / "samples" / "steps.jsonl").write_text(json.dumps(shown) + "\n")

"""What the end of a training leaves in a run directory, made up."""

import json
from pathlib import Path

import numpy as np

from momentum_transformer.experiments.configuration import to_json
from momentum_transformer.experiments.runs import Request
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


def add_run(root: Path, request: Request, scores: dict[str, float], *, loss: float = 1.0) -> None:
    """A finished run with these scores on its test split and on validation data; `loss` is its best there."""
    run = RunDirectory(request.directory(root))
    asked = {key: getattr(request, key) for key in ("experiment", "model", "scale", "seed")}
    run.path.mkdir(parents=True)
    run.write("config.json", {**asked, "settings": list(request.settings), "config": to_json(request.config)})
    run.write("provenance.json", {})  # asking git would take longer than all the rest
    for step in (0, 600, 1200):
        line = {"kind": "validation", "step": step, **scores, "loss": scores.get("loss", loss) + 1 - step / 1200}
        run.append_metrics({**line, "seconds": step / 20, "cpu_seconds": step / 30})
    run.append_metrics({"kind": "end", "step": 1200, "seconds": 60.0, "cpu_seconds": 40.0, "best_step": 1200})
    if request.experiment != "copy":
        run.append_metrics({"kind": "test", "step": 1200, "checkpoint": "best", "loss": loss, **scores})

"""Tiny translators of the toy language, trained for a moment."""

from pathlib import Path

from momentum_transformer.experiments.runs import Request, run_training

from ..experiments.toy_language import write_pair

PIECES = 60


def train_toy(root: Path, model: str, seed: int = 0) -> Path:
    """The run directory."""
    root.mkdir(parents=True, exist_ok=True)
    source, target = write_pair(root, 200)
    files = (f"data.source={source}", f"data.target={target}", f"data.pieces={PIECES}", "refine.decoding=3")
    run = root / "translation" / model / f"tiny-seed{seed}"
    assert run_training(Request("translation", model, "tiny", seed, files), run, resume=False)
    return run

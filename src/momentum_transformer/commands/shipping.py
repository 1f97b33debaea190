"""Make the runs that come with the package: `python -m momentum_transformer.commands.shipping`, or `make shipped`.

Each is trained in a run directory (one that is there is carried on), and what using it needs is kept: the
configuration, the best weights in half precision, the metrics, and a model card.
`--only mnist text/softmax` makes some.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path

import torch
from rich.console import Console
from safetensors.torch import save_file

from ..data.folder import DataError
from ..experiments import EXPERIMENTS
from ..experiments.configuration import ConfigurationError
from ..experiments.pictures.picture_task import PictureTask
from ..experiments.runs import Request, load_task, run_training
from ..experiments.shipped import KEPT_IMAGES, SHIPPED
from ..training.allocator import keep_freed_memory
from ..training.checkpoint import CheckpointError, read_checkpoint
from ..training.loop import TrainingError
from ..training.run_directory import RunDirectory, RunError

PICTURES = (
    "model.depth=3",
    "model.width=64",
    "model.feedforward=256",
    "train.steps=600",
    "train.batch_size=16",
    "train.learning_rate=0.004",
    "data.validation=100",
)
SHIPMENTS = (
    Request("digits", "momentum"),
    *(Request("mnist", model, "medium", 0, PICTURES) for model in ("softmax", "linear", "momentum", "gated-delta")),
    Request("multi30k", "autoregressive"),
    Request("text", "gated-delta"),
    Request("text", "softmax"),
)
# what each was trained on, what the model does, and whose the data is
DATA = {
    "digits": ("the digits of the UCI repository, 1,797 pictures", "draws handwritten digits, 8 × 8", "CC BY 4.0"),
    "mnist": ("MNIST", "draws handwritten digits, 28 × 28", "LeCun, Cortes and Burges, CC BY-SA 3.0"),
    "multi30k": ("Multi30k, 29,000 captions", "translates short English captions into German", "Elliott et al. 2016"),
    "text": ("tiny Shakespeare, 1.1 MB", "continues a text in the manner of Shakespeare's plays", "public domain"),
}
IMAGES = 12  # of the test split, to begin a picture with
KEPT = (
    *("config.json", "provenance.json", "metrics.jsonl", "samples.jsonl"),
    *("vocabulary.model", "vocabulary.json", "samples/steps.jsonl"),
)
ERRORS = (CheckpointError, ConfigurationError, DataError, RunError, TrainingError)


def ship(request: Request, run: Path, place: Path) -> None:
    """Keep in `place` what using a finished run needs."""
    if place.exists():
        shutil.rmtree(place)
    for name in KEPT:
        if (run / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(run / name, place / name)
    tensors, progress = read_checkpoint(RunDirectory(run).best)
    weights = {
        name: tensor.half() if tensor.dtype == torch.float32 else tensor
        for name, tensor in tensors.items()
        if name.startswith("model.")
    }
    (place / "checkpoint").mkdir()
    save_file(weights, RunDirectory(place).best, metadata={"progress": json.dumps(progress)})
    task, _, _ = load_task(run)
    if isinstance(task, PictureTask):
        (place / KEPT_IMAGES).parent.mkdir(exist_ok=True)
        (place / KEPT_IMAGES).write_bytes(bytes(task.test_images[:IMAGES].flatten().tolist()))
    parameters = sum(weight.numel() for weight in weights.values())
    (place / "README.md").write_text(model_card(request, RunDirectory(place), parameters), encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="such as mnist or text/softmax")
    parser.add_argument("--runs", type=Path, default=Path("runs/shipped"), help="where they are trained")
    parser.add_argument("--out", type=Path, default=SHIPPED, help="where they are kept")
    parser.add_argument("--data-dir", type=Path, default=None)
    asked = parser.parse_args(arguments)
    names = {one: (one.experiment, f"{one.experiment}/{one.model}") for one in SHIPMENTS}
    known = dict.fromkeys(name for both in names.values() for name in both)
    if unknown := [name for name in asked.only or () if name not in known]:
        parser.error(f"--only knows {', '.join(known)}, not {unknown[0]}")
    wanted = [one for one in SHIPMENTS if not asked.only or set(names[one]) & set(asked.only)]
    keep_freed_memory()
    console = Console(highlight=False)
    for request in wanted:
        run, place = request.directory(asked.runs), asked.out / request.experiment / request.model
        try:
            if not RunDirectory(run).concluded():
                resume = RunDirectory(run).last.is_file()
                if not run_training(request, run, resume=resume, data_dir=asked.data_dir):
                    return 130
            ship(request, run, place)
        except ERRORS as error:
            console.print(f"{request.experiment} {request.model}: {error}", soft_wrap=True)
            return 2
        console.print(f"kept: {place}", soft_wrap=True)
    return 0


def model_card(request: Request, run: RunDirectory, parameters: int) -> str:
    """What the model is, what it was trained on and how well it does: from the run's own files."""
    origin = run.read("provenance.json")
    lines = run.metrics()
    last = {line["kind"]: line for line in lines}
    test, end = last.get("test", {}), last["end"]
    tested = test | {name: last.get("translation", {}).get(name) for name in ("bleu", "chrf")}
    scores = [(name, value) for name, value in tested.items() if isinstance(value, float)]
    words = [request.experiment, "--model", request.model, "--scale", request.scale, "--seed", str(request.seed)]
    words += [word for setting in request.settings for word in ("--set", setting)]
    data, about, licence = DATA[request.experiment]
    rows = [
        ("does", about),
        ("parameters", f"{parameters:,}, kept in half precision"),
        ("trained on", f"{data}; {licence}"),
        ("steps", f"{end['step']:,}, {end['seconds'] / 60:.0f} minutes on {origin.get('cpu')}"),
        *((f"{name} (test)", f"{value:.4g}") for name, value in scores),
        ("commit", str(origin.get("commit"))),
        ("limits", "small, and made to be looked at: not for any decision about people or things"),
    ]
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    return (
        f"# {EXPERIMENTS[request.experiment].title}: {request.model}\n\n| | |\n|---|---|\n{table}\n\n"
        f"Scores are those of the trained run, in single precision. Train it again:\n\n"
        f"```\nmomentum train {' '.join(words)}\n```\n"
    )


if __name__ == "__main__":
    sys.exit(main())

"""Every experiment trains on two processes what it trains on one, with weights whole in each or over both."""

from pathlib import Path

import pytest

from momentum_transformer.experiments import EXPERIMENTS
from momentum_transformer.experiments.runs import Request, run_training

from ..data.small_sets import write_arena, write_cifar10
from ..data.test_images import write_mnist
from ..experiments.test_own_data import write_pictures, write_table
from ..experiments.toy_language import write_pair
from ..processes import run_together
from .test_loop import losses

pytest.importorskip("sentencepiece", reason="translation needs sentencepiece")
pytest.importorskip("PIL", reason="pictures need pillow")
# two names for the same task on official files; translation is that task on any files
OFFICIAL = ("multi30k", "iwslt16")
WAYS = ("ddp", "fsdp")


def write_data(root: Path) -> dict[str, tuple[str, ...]]:
    """Small files for every experiment that needs some; its settings that name them."""
    write_arena(root)
    for name in ("mnist", "fashion"):
        write_mnist(root / name, train=120, test=20)
    write_cifar10(root / "images" / "cifar10" / "cifar-10-batches-bin", train=120, test=20)
    source, target = write_pair(root, 200)
    (root / "some.txt").write_text("the quick brown fox jumps over the lazy dog. " * 400)
    return {
        "text": (f"data.source={root / 'some.txt'}",),
        "table": (f"data.source={write_table(root / 'colours.csv')}",),
        "images": (f"data.source={write_pictures(root / 'pictures', 30)}",),
        "translation": (f"data.source={source}", f"data.target={target}", "data.pieces=60"),
    }


def request(experiment: str, settings: tuple[str, ...]) -> Request:
    model = "momentum" if "momentum" in EXPERIMENTS[experiment].models else EXPERIMENTS[experiment].models[0]
    return Request(experiment, model, "tiny", 0, ("train.steps=3", "train.log_every=1", *settings))


def train_all(root: Path, settings: dict[str, tuple[str, ...]], ways: tuple[str, ...]) -> None:
    for experiment in EXPERIMENTS:
        if experiment in OFFICIAL:
            continue
        folder = root / "images" if experiment == "cifar10" else root
        for way in ways:
            chosen = (*settings.get(experiment, ()), *((f"train.parallel={way}",) if way in WAYS else ()))
            run_training(request(experiment, chosen), root / "runs" / way / experiment, resume=False, data_dir=folder)


@pytest.mark.slow
def test_every_experiment_trains_on_two_processes_what_it_trains_on_one(tmp_path: Path) -> None:
    settings = write_data(tmp_path)
    train_all(tmp_path, settings, ("alone",))
    run_together(train_all, 2, tmp_path, tmp_path, settings, WAYS)
    for one in sorted((tmp_path / "runs" / "alone").iterdir()):
        expected = losses(one)
        assert len(expected) >= 4, one.name
        for way in WAYS:
            found = losses(tmp_path / "runs" / way / one.name)
            assert [line[:2] for line in found] == [line[:2] for line in expected], (way, one.name)
            for (_, _, a), (_, _, b) in zip(found, expected, strict=True):
                assert a == pytest.approx(b, rel=2e-3), (way, one.name)

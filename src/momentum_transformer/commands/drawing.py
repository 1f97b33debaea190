"""Draw pictures with a trained run, and put them on disk."""

import time
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from ..experiments.configuration import ConfigurationError
from ..experiments.trained_tasks import load_picture_task
from ..generation.grids import prepare_path, save_drawing, save_grid, save_singles
from ..generation.pixels import draw_images


def generate_pictures(
    path: Path,
    *,
    count: int,
    temperature: float,
    seed: int,
    offset: int,
    out: Path,
    gif: Path | None,
    singles: Path | None,
    checkpoint: str,
    data_dir: Path | None,
    console: Console,
) -> None:
    """A grid, and if asked for an animation and single pictures; with `offset`, completions of test images."""
    task = load_picture_task(path, checkpoint, data_dir)
    model = task.pixel_model.to("cuda" if torch.cuda.is_available() else "cpu").eval()
    if count < 1 or not 0 <= temperature < float("inf"):
        raise ConfigurationError(
            f"--count must be 1 or more and --temperature 0 or more, not {count} and {temperature}"
        )
    if not 0 <= offset < model.length:
        raise ConfigurationError(f"--offset must be 0 to {model.length - 1}, the bytes of a picture, not {offset}")
    prepare_path(out, ".png")
    if gif is not None:
        prepare_path(gif, ".gif")
    given = None
    if offset:
        if count > len(task.test_images):
            raise ConfigurationError(f"--count must be at most {len(task.test_images)}, the test images, not {count}")
        given = task.test_images[:count, :offset]
    started = time.perf_counter()
    with _bar(console) as bar:
        work = bar.add_task("drawing", total=count * (model.length - offset))
        pictures = draw_images(
            model,
            count=count,
            given=given,
            temperature=temperature,
            seed=seed,
            drawn=lambda size: bar.advance(work, size),
        )
    seconds = time.perf_counter() - started
    save_grid(pictures, task.shape, out)
    console.print(f"drew {count} pictures in {seconds:.1f} s: {out}", soft_wrap=True)
    if gif is not None:
        save_drawing(pictures, task.shape, gif, given=offset)
        console.print(f"the drawing: {gif}", soft_wrap=True)
    if singles is not None:
        save_singles(pictures, task.shape, singles)
        console.print(f"one by one: {singles}", soft_wrap=True)


def _bar(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)

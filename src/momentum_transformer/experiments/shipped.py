"""The trained runs that come with the package, so that there is something to look at right after installing."""

from pathlib import Path

SHIPPED = Path(__file__).parents[1] / "shipped"
KEPT_IMAGES = Path("samples", "test_images.bin")  # of a run that draws: pictures to begin with, byte by byte
DRAWS = ("digits/momentum", "mnist/momentum")  # the first that is there draws, where none is named
WRITES = ("text/gated-delta", "text/softmax")  # and writes


def shipped_runs() -> tuple[Path, ...]:
    """The folder of all of them, or nothing where this installation has none."""
    return (SHIPPED,) if any(SHIPPED.rglob("config.json")) else ()


def shipped_run(names: tuple[str, ...] = DRAWS) -> Path | None:
    """The run directory of one that draws, or WRITES; None where this installation has none."""
    return next((SHIPPED / name for name in names if (SHIPPED / name / "config.json").is_file()), None)

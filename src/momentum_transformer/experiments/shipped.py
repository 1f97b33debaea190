"""The trained run that comes with the package, so that there is something to draw with right after installing."""

from pathlib import Path

SHIPPED = Path(__file__).parents[1] / "shipped"


def shipped_run() -> Path | None:
    """Its run directory, or None where this installation has none."""
    return SHIPPED if (SHIPPED / "config.json").is_file() else None

"""A section of the report, and the words for a comparison."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from .entries import Key
from .tables import Table


@dataclass(frozen=True)
class Section:
    name: str
    title: str
    intro: str
    figure: Figure
    table: Table
    findings: tuple[str, ...]
    gallery: tuple[tuple[str, Path], ...] = ()  # (label, PNG)
    more: tuple[Table, ...] = ()
    texts: tuple[tuple[str, str], ...] = ()  # (label, what the model wrote)
    shows: frozenset[Key] = frozenset()  # runs that need no other section


SETTLED = "yes, in every pair of seeds"
OVERLAP = "on average, but the seeds overlap"
ONE_SEED = "but with one seed only"
UNSETTLED = (f"yes, {ONE_SEED}", f"no, {ONE_SEED}", OVERLAP, "no")


def separated(better: np.ndarray, worse: np.ndarray) -> str:
    """Whether lower is lower, in words: for every pair of seeds, on average only, or not."""
    if min(len(better), len(worse)) == 1:
        return f"{'yes' if better.mean() < worse.mean() else 'no'}, {ONE_SEED}"
    if better.max() < worse.min():
        return SETTLED
    if better.mean() < worse.mean():
        return OVERLAP
    return "no"

"""One file a table of the paper."""

from .copy import COPY, STUDIES
from .experiment import Experiment, Study

EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in (COPY,)}
REPRODUCTIONS: dict[str, Study] = {study.name: study for study in STUDIES}

__all__ = ["EXPERIMENTS", "REPRODUCTIONS", "Experiment", "Study"]

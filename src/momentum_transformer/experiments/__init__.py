"""What can be trained, and studies of it: a file or folder a table of the paper, a kind of data, or of made task."""

from .copy import COPY
from .copy import STUDIES as COPY_STUDIES
from .experiment import Experiment, Study
from .gap import GAP
from .labelling import TABLE
from .lra.lra_task import LRA
from .lra.lra_task import STUDIES as LRA_STUDIES
from .paper_tables import TABLES
from .pictures.picture_task import PICTURES
from .pictures.picture_task import STUDIES as PICTURE_STUDIES
from .synthetic.recall import RECALL
from .synthetic.regression import REGRESSION
from .synthetic.selection import SELECTION
from .synthetic.tracking import TRACKING
from .text import STUDIES as TEXT_STUDIES
from .text import TEXT
from .translation.translation_task import STUDIES as TRANSLATION_STUDIES
from .translation.translation_task import TRANSLATIONS

ADDED: tuple[Experiment, ...] = ()  # behind the others; docs/extending.md adds one
EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        *(COPY, *RECALL, SELECTION, *TRACKING, REGRESSION, TEXT, TABLE, *PICTURES, *LRA, *TRANSLATIONS),
        *ADDED,
    )
}
REPRODUCTIONS: dict[str, Study] = {
    study.name: study
    for study in (
        GAP,
        *COPY_STUDIES,
        *TEXT_STUDIES,
        *PICTURE_STUDIES,
        *LRA_STUDIES,
        *TRANSLATION_STUDIES,
        TABLES,
    )
}

__all__ = ["EXPERIMENTS", "REPRODUCTIONS", "Experiment", "Study"]

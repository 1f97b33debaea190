"""One file a table of the paper, or a kind of made task."""

from .copy import COPY
from .copy import STUDIES as COPY_STUDIES
from .experiment import Experiment, Study
from .gap import GAP
from .labelling import TABLE
from .lra import LRA
from .lra import STUDIES as LRA_STUDIES
from .pictures import PICTURES
from .pictures import STUDIES as PICTURE_STUDIES
from .recall import RECALL
from .regression import REGRESSION
from .selection import SELECTION
from .tables import TABLES
from .text import STUDIES as TEXT_STUDIES
from .text import TEXT
from .tracking import TRACKING
from .translation import STUDIES as TRANSLATION_STUDIES
from .translation import TRANSLATIONS

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (COPY, *RECALL, SELECTION, *TRACKING, REGRESSION, TEXT, TABLE, *PICTURES, *LRA, *TRANSLATIONS)
}
REPRODUCTIONS: dict[str, Study] = {
    study.name: study
    for study in (
        *COPY_STUDIES,
        *TEXT_STUDIES,
        *PICTURE_STUDIES,
        *LRA_STUDIES,
        *TRANSLATION_STUDIES,
        TABLES,
        GAP,
    )
}

__all__ = ["EXPERIMENTS", "REPRODUCTIONS", "Experiment", "Study"]

"""The paper's tables as one study, in order of value: what comes first says most about momentum attention."""

from collections.abc import Sequence

from .copy import COPY
from .experiment import Experiment, Study, Variant
from .lra.lra_scales import BASELINE, SMALL_RATE
from .lra.lra_task import LRA
from .pictures.picture_task import PICTURES
from .translation.translation_scales import TEACHER
from .translation.translation_task import TRANSLATIONS

_EXPERIMENTS = {experiment.name: experiment for experiment in (COPY, *PICTURES, *LRA, *TRANSLATIONS)}
LINEAR_TIME = ("linear", "momentum", "adaptive-momentum")
CLASSIFIERS = (*LINEAR_TIME, "softmax", "gated-delta", BASELINE)


def part(name: str, models: Sequence[str], *settings: str, waits: bool = False) -> Study:
    """The models of the list that the experiment has."""
    experiment: Experiment = _EXPERIMENTS[name]
    known = (model for model in models if model in experiment.models)
    return Study(name, experiment.title, name, tuple(Variant(model, settings, waits) for model in known))


_FIRST = part("copy", ("softmax", *LINEAR_TIME, "momentum-connection", "reformer"))
TABLES = Study(
    "tables",
    "Every table of the paper, in order of value",
    _FIRST.experiment,
    _FIRST.variants,
    then=(
        part("lra-listops", (*LINEAR_TIME, "gated-delta", BASELINE)),
        # at the paper's rate the loss stays on its plateau for long
        part("lra-listops", (*LINEAR_TIME, "gated-delta"), f"train.learning_rate={SMALL_RATE}"),
        part("mnist", (*LINEAR_TIME, "softmax", "gated-delta")),
        part("multi30k", (TEACHER,)),
        part("multi30k", ("softmax", *LINEAR_TIME, "momentum-delta"), f"data.teacher={TEACHER}", waits=True),
        part("lra-text", CLASSIFIERS),
        part("lra-image", CLASSIFIERS),
        part("cifar10", (*LINEAR_TIME, "softmax", "gated-delta")),
        part("lra-retrieval", CLASSIFIERS),
    ),
)

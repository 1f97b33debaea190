"""From run directories to models the page can show."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ..experiments.configuration import ConfigurationError
from ..experiments.mixer_settings import MomentumSettings
from ..experiments.named_models import ALL_MODELS
from ..experiments.pictures.picture_task import PICTURES, PictureTask
from ..experiments.runs import Request, load_run, load_task_of
from ..experiments.text import TEXT, TextTask
from ..experiments.trained_tasks import load_picture_task, load_translation_task
from ..experiments.translation.translation_scales import TEACHER
from ..experiments.translation.translation_task import TRANSLATIONS, TranslationTask
from ..training.checkpoint import CheckpointError, read_checkpoint
from ..training.run_directory import RunDirectory, RunError, find_runs
from .drawers import TrainedModel, kept_images
from .page_models import Picture
from .translators import TrainedTranslator, read_examples, warm_up
from .writers import TrainedWriter

EXAMPLES = 12
UNUSABLE = (CheckpointError, ConfigurationError, RunError)
ORDER = (TEACHER, *ALL_MODELS)  # of the paper's tables
PICTURE_NAMES = [experiment.name for experiment in PICTURES]
TRANSLATION_NAMES = [experiment.name for experiment in TRANSLATIONS]
SHOWN = [*PICTURE_NAMES, *TRANSLATION_NAMES, TEXT.name]
MAKE_ONE = "make one: momentum train digits, momentum train multi30k or momentum train text"


class Run(NamedTuple):
    request: Request
    task: PictureTask | TranslationTask | TextTask
    note: str

    @property
    def subject(self) -> str:
        """Runs of one subject are shown side by side."""
        if isinstance(self.task, TranslationTask):
            return f"{self.task.subwords.source_language} → {self.task.subwords.target_language}"
        if isinstance(self.task, TextTask):
            return self.request.experiment
        height, width, _ = self.task.shape
        return f"{self.request.experiment}, {width} × {height}"

    @property
    def parts(self) -> tuple[str, ...]:
        """What tells runs of one model and one subject apart."""
        request = self.request
        return (request.experiment, request.scale, f"seed{request.seed}", *request.settings)


class Loaded(NamedTuple):
    """Models that draw, translate and write, and what is missing, in lines for the user."""

    models: list[TrainedModel]
    translators: list[TrainedTranslator]
    writers: list[TrainedWriter]
    missing: list[str]

    @property
    def names(self) -> list[str]:
        return [model.name for kind in self[:3] for model in kind]


def load_models(paths: Sequence[Path], data_dir: Path | None = None) -> Loaded:
    """The models of run directories, or of all below a folder.

    A run that was named must be usable. Below a folder, runs that are not are left out; where none is, one must be
    under way, which the page can watch.
    """
    runs: dict[Path, Run] = {}
    missing: list[str] = []
    for path in paths:
        if not path.exists():
            raise RunError(f"there is no folder {path}; name one with runs in it")
        if (path / "config.json").exists():
            runs[path.resolve()] = _load(path, data_dir)
            continue
        for run in _below(path, missing):
            try:
                runs[run.resolve()] = _load(run, data_dir)
            except UNUSABLE as error:
                missing.append(f"left out: {error}")
    if not runs and not any(_is_under_way(run) for path in paths for run in find_runs(path)):
        reason = f" ({missing[0]})" if missing else ""
        places = ", ".join(map(str, paths))
        raise RunError(f"no trained run that draws, translates or writes in {places}{reason}; {MAKE_ONE}")
    names = _names(runs)
    writers = [
        TrainedWriter(names[path], run.note, run.task) for path, run in runs.items() if isinstance(run.task, TextTask)
    ]
    return Loaded(_pictures(runs, names, missing), _translators(runs, names, missing), writers, missing)


def _load(path: Path, data_dir: Path | None) -> Run:
    request, config = load_run(path)
    note = _progress(RunDirectory(path), config.train.steps)
    if request.experiment in TRANSLATION_NAMES:
        return Run(request, load_translation_task(path, "best"), note)
    if request.experiment in PICTURE_NAMES:
        return Run(request, load_picture_task(path, "best", data_dir), note)
    if request.experiment == TEXT.name:
        task = load_task_of([TEXT], path, "best", cannot="does not write", data_dir=data_dir)
        assert isinstance(task, TextTask)
        return Run(request, task, note)
    raise RunError(
        f"{path} is a run of {request.experiment}, which neither draws, translates nor writes; take a run of "
        f"{', '.join(SHOWN)}"
    )


def _is_under_way(run: RunDirectory) -> bool:
    try:
        return not run.finished()
    except RunError:
        return False


def _progress(run: RunDirectory, steps: int) -> str:
    """The step of the weights, where the run is not finished."""
    if run.finished():
        return ""
    _, progress = read_checkpoint(run.best)
    return f"step {progress['step']:,} of {steps:,}"


def _below(folder: Path, missing: list[str]) -> list[Path]:
    """Runs that draw, translate or write, in the order of the paper's tables; `missing` hears of the others."""
    found = []
    others = 0
    for run in find_runs(folder):
        try:
            request, _ = load_run(run.path)
        except UNUSABLE as error:
            missing.append(f"left out: {error}")
            continue
        if request.experiment in SHOWN:
            order = SHOWN.index(request.experiment), ORDER.index(request.model)
            found.append((order, run.path))
        else:
            others += 1
    if others:
        missing.append(f"left out: {others} of the runs in {folder} neither draw, translate nor write")
    return [path for _, path in sorted(found)]


def _pictures(runs: dict[Path, Run], names: dict[Path, str], missing: list[str]) -> list[TrainedModel]:
    images: dict[str, tuple[bytes, ...]] = {}
    reasons: dict[str, str] = {}  # why a subject has no test images
    models = []
    for path, run in runs.items():
        if not isinstance(task := run.task, PictureTask):
            continue
        if not images.get(run.subject):
            found, reason = task.examples(EXAMPLES)
            images[run.subject] = tuple(bytes(image.tolist()) for image in found) or kept_images(path, task)
            reasons[run.subject] = "" if images[run.subject] else reason
        picture = Picture(task.shape[1], task.shape[0], task.shape[2])
        model = task.pixel_model.eval()
        made = TrainedModel(names[path], run.note, run.subject, picture, _momentum(task), model, images[run.subject])
        models.append(made)
    missing += [f"no test images of {subject}: {reason}" for subject, reason in reasons.items() if reason]
    return models


def _translators(runs: dict[Path, Run], names: dict[Path, str], missing: list[str]) -> list[TrainedTranslator]:
    translators = []
    reasons: dict[str, str] = {}  # why a subject has no test sentences
    for path, run in runs.items():
        if isinstance(run.task, TranslationTask):
            warm_up(run.task)
            sentences, reason = read_examples(path)
            translators.append(TrainedTranslator(names[path], run.note, run.task, sentences))
            reasons[run.subject] = reason and reasons.get(run.subject, reason)
    missing += [f"no test sentences of {subject}: {reason}" for subject, reason in reasons.items() if reason]
    return translators


def _names(runs: dict[Path, Run]) -> dict[Path, str]:
    """The model's name, with no more than what tells it from others of the same name behind it."""
    names = {}
    for path, run in runs.items():
        peers = [
            other.parts
            for other in runs.values()
            if (other.request.model, other.subject) == (run.request.model, run.subject)
        ]
        own = []
        for part in run.parts:
            alike = [peer for peer in peers if part in peer]
            own += [part] if len(alike) < len(peers) else []
            peers = alike
        own += [str(path)] if peers.count(run.parts) > 1 else []
        names[path] = " ".join([run.request.model, *own])
    return names


def _momentum(task: PictureTask) -> tuple[float, float] | None:
    mixer = task.config.model.mixer
    if isinstance(mixer, MomentumSettings) and mixer.weighting == "relative":
        return mixer.beta, mixer.gamma
    return None

"""The commands of the `momentum` line, and what each of them can be told."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import Positional, UseAppendAction

# optional arguments, shown in help by the value they take
MaybePath = Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="")]
RunPath = Annotated[Path, tyro.conf.arg(metavar="RUN")]
MaybeRun = Annotated[Path | None, tyro.conf.arg(metavar="[RUN]", help_behavior_hint="")]
MaybeFile = Annotated[Path | None, tyro.conf.arg(metavar="[FILE]", help_behavior_hint="")]
Name = Annotated[str, tyro.conf.arg(metavar="NAME")]
MaybeName = Annotated[str | None, tyro.conf.arg(metavar="[NAME]", help_behavior_hint="")]
MaybeText = Annotated[str | None, tyro.conf.arg(metavar="TEXT", help_behavior_hint="")]
MaybeWhole = Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")]
MaybeNumber = Annotated[float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="")]
Paths = Annotated[tuple[Path, ...], tyro.conf.arg(metavar="PATH ...", help_behavior_hint="")]
MaybePaths = Annotated[tuple[Path, ...], tyro.conf.arg(metavar="[PATH ...]", help_behavior_hint="")]
Shapes = Annotated[tuple[str, ...], tyro.conf.arg(metavar="B,H,N,D ...", help_behavior_hint="")]
Settings = Annotated[UseAppendAction[tuple[str, ...]], tyro.conf.arg(name="set", metavar="PART.FIELD=VALUE")]


@dataclass(frozen=True)
class List:
    """Show experiments and what `reproduce` can run, or all there is to know of one.

    Example: momentum list, or momentum list copy
    """

    name: Positional[MaybeName] = None
    """An experiment or a study: its models, scales and settings, or its runs."""
    queue: bool = False
    """Show instead what `reproduce STUDY --queue` has done, is doing and has left, with hours."""
    study: str = "tables"
    """Of the queue: its study."""
    scale: str = "medium"
    """Of the queue: its scale."""
    seeds: int = 3
    """Of the queue: how many seeds per model."""
    runs: Path = Path("runs")
    """Of the queue: where its run directories are."""
    results: Path = Path("results")
    """Of the queue: where finished runs are copied to."""


@dataclass(frozen=True)
class Train:
    """Train a model. Some experiments have more options: momentum train text --help.

    Example: momentum train copy --model momentum --set train.steps=100
    """

    experiment: Positional[Name]
    """Which experiment; `momentum list` shows them."""
    model: str = "momentum"
    """Which model."""
    scale: str = "small"
    """tiny (seconds), small (minutes on two cores), medium (an hour) or paper (the exact protocol)."""
    seed: int = 0
    """Decides initial weights, data and dropout."""
    settings: Settings = ()
    """Change one value of the configuration; may be repeated."""
    fidelity: str = "paper"
    """Long Range Arena: paper (its equations, true masks) or released (what the authors' code does)."""
    source: Paths = ()
    """Your own data."""
    target: MaybePath = None
    """Their translations, line by line."""
    text_column: MaybeText = None
    """The column of the texts, by its name or number; by default `text`."""
    label_column: MaybeText = None
    """The column of their labels; by default `label`."""
    runs: Path = Path("runs")
    """Where run directories go."""
    out: MaybePath = None
    """This run's own directory, instead of one below --runs."""
    resume: bool = False
    """Carry on from the last checkpoint, or begin where there is none; the same line serves every restart."""
    data_dir: MaybePath = None
    """Where data sets are; by default $MOMENTUM_DATA, else `data`."""


@dataclass(frozen=True)
class Evaluate:
    """Evaluate a trained run on validation data, or on the test split.

    Example: momentum evaluate runs/copy/momentum/small-seed0
    """

    run: Positional[RunPath]
    """A run directory."""
    checkpoint: str = "best"
    """best or last."""
    split: str = "validation"
    """validation or test."""
    data_dir: MaybePath = None
    """Where data sets are; by default $MOMENTUM_DATA, else where the run found its data."""


@dataclass(frozen=True)
class Generate:
    """Draw pictures or write text with a trained run; RUN --help shows its options.

    Example: momentum generate runs/my --prompt "ROMEO:" --tokens 500
    """

    run: Positional[MaybeRun] = None
    """A run directory; by default a model that comes with this package: with --prompt one that writes."""
    prompt: MaybeText = None
    """What the text begins with, by default a line break; with - you and the model take turns, line by line."""
    tokens: int = 500
    """How many tokens follow."""
    top_k: int = 0
    """Choose among this many of the most likely tokens; 0 means all."""
    top_p: float = 1.0
    """Choose among the most likely tokens that have this share of the probability."""
    stop: str = ""
    """End before this string, in which \\n is a line break."""
    count: int = 64
    """How many pictures."""
    out: MaybePath = None
    """The grid, a PNG; by default samples/drawn.png in the run directory, grid.png without one."""
    temperature: MaybeNumber = None
    """Below 1 more likely ones, above 1 wilder ones; by default 1 for pictures, 0.8 for text."""
    seed: int = 0
    """The same seed draws the same pictures, and writes the same text."""
    offset: int = 0
    """Complete test images after that many bytes, instead of drawing from nothing."""
    gif: MaybePath = None
    """Also an animation of the drawing, a GIF."""
    singles: MaybePath = None
    """Also a PNG for each picture, in this folder."""
    checkpoint: str = "best"
    """best or last."""
    data_dir: MaybePath = None
    """Where data sets are, for --offset; by default $MOMENTUM_DATA, else where the run found its data."""


@dataclass(frozen=True)
class Translate:
    """Translate lines with a trained run, of a file or of standard input.

    Example: echo "A dog runs." | momentum translate runs/translator --show-steps
    """

    run: Positional[RunPath]
    """A run directory."""
    text: Positional[MaybeFile] = None
    """What to translate, one sentence a line, plain or gz; by default, and by -, standard input."""
    out: MaybePath = None
    """Where translations go; by default to standard output."""
    refine: MaybeWhole = None
    """How often the first draft is refined; by default as often as the run says."""
    until_fixed: bool = False
    """Stop refining a sentence when it no longer changes."""
    show_steps: bool = False
    """Show the first draft and each refinement, too."""
    batch: int = 32
    """Lines translated together at most; of standard input, those that have come."""
    checkpoint: str = "best"
    """best or last."""


@dataclass(frozen=True)
class Predict:
    """Label lines with a trained run of `table`, of a file or of standard input.

    Example: echo "What a film!" | momentum predict runs/reviews
    """

    run: Positional[RunPath]
    """A run directory."""
    text: Positional[MaybeFile] = None
    """What to label: a text file, line by line, or a table (.csv, .tsv, .jsonl); plain or gz. By default, and by -,
    standard input."""
    out: MaybePath = None
    """Where labels go, a line for each; by default to standard output."""
    format: str = "tsv"
    """tsv (label and probability) or jsonl (all probabilities, too)."""
    text_column: MaybeText = None
    """Of a table: the column of the texts; by default as in training."""
    batch: int = 32
    """Lines labelled together at most; of standard input, those that have come."""
    checkpoint: str = "best"
    """best or last."""


@dataclass(frozen=True)
class Reproduce:
    """Run a table or figure of the paper: every model and seed, then the report.

    Example: momentum reproduce copy --seeds 3
    """

    study: Positional[Name]
    """What to reproduce; `momentum list` shows the names."""
    scale: str = "small"
    """tiny, small, medium or paper."""
    seeds: MaybeWhole = None
    """How many seeds per model; by default 1, with --queue 3."""
    rates: MaybeWhole = None
    """How many of a study's learning rates the first seed tries, the standard one first; by default all."""
    jobs: int = 1
    """How many runs at a time; they share the cores."""
    dry_run: bool = False
    """Only print what is left to run, one command a line."""
    slurm: bool = False
    """Only print what is left as an array job: momentum reproduce copy --seeds 3 --slurm | sbatch"""
    settings: Settings = ()
    """Change one value of every run's configuration; may be repeated."""
    fidelity: str = "paper"
    """Long Range Arena: paper (its equations, true masks) or released (what the authors' code does)."""
    runs: Path = Path("runs")
    """Where run directories go; what is finished there is kept."""
    report: Path = Path("report")
    """Where the report goes."""
    queue: bool = False
    """Use idle time: one run at a time, one thread, the lowest priority; failures are passed over. No report."""
    results: Path = Path("results")
    """With --queue: where finished runs are copied, without weights."""
    data_dir: MaybePath = None
    """Where data sets are; by default $MOMENTUM_DATA, else `data`."""


@dataclass(frozen=True)
class Report:
    """Write figures, tables and one HTML page from finished runs.

    Example: momentum report runs --out report
    """

    runs: Positional[MaybePaths] = (Path("runs"),)
    """Run directories, or folders that hold them; by default the folder runs."""
    out: Path = Path("report")
    """Where the report goes."""


@dataclass(frozen=True)
class Bench:
    """Time causal attention on this CPU, ours and its peers, once they agree.

    Example: momentum bench --threads 2 --out bench.json --plot bench.svg
    """

    shapes: Shapes = ()
    """Time shapes such as 64,8,128,32 instead of the standard four."""
    family: bool = False
    """Time gated delta, momentum delta, KDA and one token instead, beside Transformers; 1 thread, then all."""
    backends: bool = False
    """Only say which backend is active, and why another is not."""
    peers: bool = True
    """Also time other packages that are installed."""
    threads: MaybeWhole = None
    """How many threads; by default as many as PyTorch takes."""
    out: MaybePath = None
    """Write every number there as JSON."""
    plot: MaybePath = None
    """Draw time and memory against the length there, as SVG."""
    quick: bool = False
    """Tiny shapes in seconds: a smoke test, not a measurement."""
    transformers: bool = False
    """Time mixers and small models of Transformers instead, alone and on our kernels, on one thread."""


@dataclass(frozen=True)
class Export:
    """Write a trained run as a folder that Transformers loads, with a model card.

    Example: momentum export runs/copy/momentum/small-seed0 exported
    """

    run: Positional[RunPath]
    """A run directory of a language model, or of a classifier of one sequence."""
    out: Positional[Path]
    """The folder to make."""
    checkpoint: str = "best"
    """best or last."""


@dataclass(frozen=True)
class Serve:
    """Serve a page where models work side by side. Ctrl-C ends it.

    Example: momentum serve runs
    """

    runs: Positional[MaybePaths] = ()
    """Run directories, or folders that hold them; by default the models that come with this package."""
    host: str = "127.0.0.1"
    """Address to listen on; by default only this machine can reach the page."""
    port: int = 8000
    """Port to listen on; 0 takes any that is free."""
    data_dir: MaybePath = None
    """Where data sets are, for test images; by default $MOMENTUM_DATA, else where the run found its data."""


Command = List | Train | Evaluate | Generate | Translate | Predict | Reproduce | Report | Bench | Export | Serve

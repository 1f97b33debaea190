"""The words of a command line: which flags a command has for what it is about, and one line for what is wrong."""

import dataclasses
import difflib
import io
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Annotated, Any, Union, cast, get_type_hints

import tyro

from .bounded import MEGABYTE, UNREADABLE, parse_json, read_bounded
from .errors import CommandError

TRANSLATIONS = "translation"
SOURCES = {  # what --source is, of an experiment on one's own data
    "text": "Files or folders of text, plain or .gz; by default tiny Shakespeare.",
    "images": "A folder of PNG and JPEG files, or a tar archive of them.",
    "table": "A .csv, .tsv or .jsonl file, plain or .gz.",
    TRANSLATIONS: "A file of sentences, one a line, plain or .gz.",
}
PICTURES = "pictures|digits|mnist|fashion|cifar10|images"
APPLIES: dict[str, dict[str, str]] = {  # command → flag that some experiments lack → pattern of the others
    "train": {
        "fidelity": "lra-.*",
        "source": "|".join(SOURCES),
        "target": TRANSLATIONS,
        **dict.fromkeys(("text_column", "label_column"), "table"),
    },
    "reproduce": {"fidelity": "lra.*|tables"},
    "generate": {
        **dict.fromkeys(("prompt", "tokens", "top_k", "top_p", "stop"), "text"),
        **dict.fromkeys(("count", "out", "offset", "gif", "singles", "data_dir"), PICTURES),
    },
}


UNKNOWN = "?"  # the experiment of a command, where it cannot be told: then no flag is refused
COLOURS = r"\x1b\[[0-9;]*m"
NUMBERS = {"invalid literal for int": "a whole number", "could not convert string to float": "a number"}


class UsageError(CommandError):
    """Words that make no command; the message is for the user."""


def parse(
    kinds: Sequence[type],
    words: Sequence[str],
    *,
    description: str,
    check_subject: Callable[[str, str], None] = lambda command, subject: None,
) -> Any:
    """Parse the words into one of the command dataclasses, chosen by class name.

    Where an option does not fit the subject, `check_subject` may first raise a better error (unknown subject).
    """
    named = {kind.__name__.lower(): kind for kind in kinds}
    if not words:
        raise UsageError(f"which command? one of {', '.join(named)}; momentum --help shows what they do")
    name = words[0] if words[0] in named else None
    if name is None and words[0] not in ("-h", "--help"):
        if words[0] == "--version":
            raise UsageError(f"--version stands alone, without {words[1]!r}")
        alone = ["--help", "--version"]
        kind, known = ("option", alone) if words[0].startswith("-") else ("command", [*named, *alone])
        raise UsageError(f"unknown {kind} {words[0]!r}; {_nearest(words[0], known)}momentum --help shows all")
    if name is not None:
        subject, flags = _subject(name, words[1:]), APPLIES.get(name, {})
        hidden = {flag for flag, pattern in flags.items() if not re.fullmatch(pattern, subject or "")}
        if subject == UNKNOWN:
            hidden = set()
        _check(named[name], name, words[1:], hidden, subject, check_subject)
        named[name] = _for_subject(named[name], hidden, subject or "")
    if name is not None and ("-h" in words or "--help" in words):
        words = [name, "--help"]  # the flags are those of the subject; its usage has a place for it
    said, shown = io.StringIO(), _Shown()
    try:
        with redirect_stderr(said), redirect_stdout(shown):
            union: Any = Union[tuple(named.values())]  # noqa: UP007 (made of a list)
            return tyro.cli(union, prog="momentum", description=description, args=list(words))
    except SystemExit as stop:
        if not stop.code:
            sys.stdout.write(shown.narrow())
            raise
        raise UsageError(_first_sentence(said.getvalue())) from None


class _Shown(io.TextIOWrapper):
    """Captures help text with the terminal's encoding and colour support."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), sys.stdout.encoding, "replace")
        self.isatty = sys.stdout.isatty  # type: ignore[method-assign]

    def narrow(self) -> str:
        """With a usage as wide as the terminal, and without all commands in it, which stand below."""
        self.seek(0)
        usage, rest = re.sub(COLOURS, "", self.readline()), self.read()
        columns = shutil.get_terminal_size().columns
        usage = re.sub(r"\{[^}]*\}", "COMMAND ...", usage)
        usage = re.sub(r"(\[--\S+) ", "\\1\xa0", usage)  # no line ends between an option and its value
        usage = textwrap.fill(usage, columns, subsequent_indent="    ", break_on_hyphens=False)
        return usage.replace("\xa0", " ") + "\n" + rest


def _subject(name: str, words: Sequence[str]) -> str | None:
    """The experiment, study or run that a command is about; a run is known by its experiment."""
    first = next((word for i, word in enumerate(words) if not _is_value(words, i)), None)
    if name != "generate":
        return first
    if first is None:  # one of the models that come with the package
        return UNKNOWN if "--help" in words or "-h" in words else "text" if _has(words, "--prompt") else "pictures"
    try:
        experiment = str(parse_json(read_bounded(Path(first) / "config.json", MEGABYTE))["experiment"])
        return experiment if re.fullmatch(f"text|{PICTURES}", experiment) else UNKNOWN
    except (*UNREADABLE, ValueError, KeyError, TypeError):
        return UNKNOWN


def _has(words: Sequence[str], option: str) -> bool:
    return any(word.partition("=")[0] == option for word in words)


def _is_value(words: Sequence[str], i: int) -> bool:
    before = words[i - 1] if i else ""
    return words[i].startswith("-") or (before.startswith("--") and "=" not in before)


def _check(
    kind: type,
    name: str,
    words: Sequence[str],
    hidden: set[str],
    subject: str | None,
    check_subject: Callable[[str, str], None],
) -> None:
    """Refuse the first option that this command does not have, and one that is given again."""
    known, once = _flags(kind)
    first = next((word for i, word in enumerate(words) if not _is_value(words, i)), None)
    if first is None and name == "generate":  # what it is about was guessed
        suggested = list(known)
    else:
        suggested = [flag for flag, field in known.items() if field not in hidden]
    seen: set[str] = set()
    for i, word in enumerate(words):
        option = word.partition("=")[0].replace("_", "-")
        if word == "--out=" or list(words[i : i + 2]) == ["--out", ""]:
            raise UsageError("--out is empty; name a place, or leave --out away")
        if not option.startswith("--") or option == "--":
            continue
        if option not in known:
            close = _nearest(option, suggested)
            raise UsageError(f"unknown option {option!r}; {close}momentum {name} --help shows all")
        if option in seen and option in once:
            raise UsageError(f"{option} is given more than once; give it once{once[option]}")
        seen.add(option)
        if known[option] in hidden and "--help" not in words:
            if subject:
                check_subject(name, subject)
            about = "" if first is None else f" {first}"
            raise UsageError(f"{option} is not for {subject or 'this'}: momentum {name}{about} --help shows what is")


def _flags(kind: type) -> tuple[dict[str, str], dict[str, str]]:
    """The field of each flag of a command; and the flags that stand once, with how several values are given."""
    known, once = {"-h": "", "--help": ""}, {}
    for field in dataclasses.fields(kind):
        if tyro.conf.Positional in getattr(field.type, "__metadata__", ()):
            continue
        flag = {"settings": "set"}.get(field.name, field.name).replace("_", "-")
        known[f"--{flag}"] = field.name
        if field.type in (bool, "bool"):
            known[f"--no-{flag}"] = field.name
        elif field.name != "settings":
            once[f"--{flag}"] = ", with all that it takes behind it" if isinstance(field.default, tuple) else ""
    return known, once


def _nearest(given: str, known: Any) -> str:
    close = difflib.get_close_matches(given, list(known), n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}? " if close else ""


def _for_subject(kind: type, hidden: set[str], subject: str) -> type:
    """The same command without these flags, and with what its source is."""
    hints, suppress = get_type_hints(kind, include_extras=True), cast(Any, tyro.conf.Suppress)
    changed: dict[str, Any] = {name: suppress[hints[name]] for name in hidden}
    if "source" in hints and subject in SOURCES:
        changed["source"] = Annotated[hints["source"], tyro.conf.arg(help=SOURCES[subject])]
    defaults = {field.name: dataclasses.field(default=field.default) for field in dataclasses.fields(kind)}
    made = dataclasses.make_dataclass(
        kind.__name__, [(name, hint, defaults[name]) for name, hint in changed.items()], bases=(kind,), frozen=True
    )
    made.__doc__ = kind.__doc__
    return made


def _first_sentence(box: str) -> str:
    """What stands below the title of a framed message, up to the next rule, as one line."""
    lines = [line.strip(" │|╭╮╰╯+") for line in re.sub(COLOURS, "", box).splitlines()]
    said: list[str] = []
    for line in filter(None, lines[1:]):
        if line.strip("─-"):
            said.append(line)
        elif said:
            break
    if found := re.fullmatch(r"Error parsing (--\S+): (.*?)(?:\(\) with base 10)?: (.*)", " ".join(said)):
        option, trouble, given = found.groups()
        if trouble in NUMBERS:
            return f"{option} must be {NUMBERS[trouble]}, not {given}"
    if found := re.fullmatch(r"Missing from (momentum \w+): (.*)", " ".join(said)):
        command, missing = found.groups()
        asked = (part.strip(" .").split(maxsplit=1) for part in missing.split("(required)") if part.strip())
        return f"{command} needs {', '.join(f'{name} ({what[0].lower()}{what[1:]})' for name, what in asked)}"
    return " ".join(said) or "these words make no command; momentum --help shows which do"

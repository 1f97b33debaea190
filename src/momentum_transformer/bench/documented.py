"""Every table and figure of measurements in README and docs: its record in results/, and what makes a table of it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from . import attention_tables, contexts, family_tables, kernel_tables, limits, plot, robustness_tables, speed_tables
from . import transformers_tables as transformers
from .targets import Record


class Source(NamedTuple):
    """The command that writes `results/STEM.json`, and the tables made of it, by the names they have in the pages."""

    command: str
    tables: dict[str, Callable[..., str]]
    figure: Callable[[Record], str] | None = None  # docs/results/STEM.svg


def bench(name: str) -> str:
    return f"python -m momentum_transformer.bench.{name}"


SOURCES = {
    "attention": Source(bench("attention_costs"), {"attention": kernel_tables.attention_table}),
    "accuracy": Source(bench("accuracy"), {"accuracy": kernel_tables.accuracy_table}),
    "training": Source(bench("training_step"), {"training": kernel_tables.training_table}),
    "versions": Source(bench("older_version"), {"versions": kernel_tables.versions_table}),
    "steps": Source(bench("older_version"), {"steps": kernel_tables.steps_table}),
    "profile": Source(bench("kernel_profile"), {"profile": kernel_tables.profile_table}),
    "blocks": Source(bench("blocks"), {"blocks": kernel_tables.blocks_table}),
    "limits": Source(bench("limits"), {"limits": limits.markdown}),
    "bench": Source("momentum bench", {"bench": attention_tables.markdown}, plot.draw),
    "family": Source("momentum bench --family", {"family": family_tables.markdown}),
    "transformers": Source(
        "momentum bench --transformers",
        {"transformers": transformers.markdown, "transformers-headline": transformers.headline},
    ),
    "generation": Source(bench("picture_speed"), {"generation": speed_tables.generation_table}),
    "decoding": Source(bench("picture_speed"), {"decoding": speed_tables.generation_table}),
    "contexts": Source(bench("decoding_speed"), {"contexts": contexts.markdown}, contexts.draw),
    "translation": Source(bench("translation_speed"), {"translation": speed_tables.translation_table}),
    "scaling": Source(
        bench("sequence_scaling"),
        {"scaling": speed_tables.scaling_table, "scaling-model": speed_tables.scaling_model},
    ),
    "faults": Source("python -m tests.faults", {"faults": robustness_tables.faults_table}),
    "fuzz": Source("python -m tests.fuzz", {"fuzz": robustness_tables.fuzz_table}),
    "load": Source("python -m tests.load", {"load": robustness_tables.load_table}),
    "border": Source(bench("interrupted_calls"), {"border": robustness_tables.border_table}),
}


def read(path: Path) -> Record:
    """A record, with its command as it would be given: some are measured into another folder, and kept later."""
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if "command" in record:
        command = re.sub(r"^\S*__main__\.py ", "momentum ", record["command"])
        command = re.sub(r"/tmp/\S+\.json", f"results/{path.name}", command)
        record["command"] = re.sub(r"/tmp/\S+\.svg", f"docs/results/{path.stem}.svg", command)
    return record


def documented(results: Path, figures: Path) -> dict[str, str]:
    """The Markdown of every table, by name; figures are written on the way."""
    found: dict[str, str] = {}
    for stem, source in SOURCES.items():
        path = results / f"{stem}.json"
        if not path.exists():
            found |= dict.fromkeys(source.tables, f"Not measured yet: `{source.command}`.\n")
            continue
        # records of other machines have a suffix
        record, *elsewhere = map(read, (path, *sorted(results.glob(f"{stem}-*.json"))))
        found |= {name: table(record, *elsewhere) for name, table in source.tables.items()}
        if source.figure is not None:
            (figures / f"{stem}.svg").write_text(source.figure(record), encoding="utf-8")
    return found

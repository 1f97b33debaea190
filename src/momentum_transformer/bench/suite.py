"""The whole benchmark: gate, shapes, lengths, memory, very long sequences. One record comes out, ready for JSON."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ..backend.choose import active_backend, backends
from ..durable import make_folder, replace_file
from ..training.provenance import provenance
from .contestants import BETA, EVERYONE, OURS, OWN, SDPA, Attend, Contestant
from .gate import judge
from .measured_shapes import LENGTHS, LONG, MEMORY_LENGTHS, TARGETS, BenchError, Shape
from .memory import measure
from .timing import DIRECTIONS, Budget, time_shape

FORMAT = 1
LENGTH_NAMES = (*(f"{backend} momentum" for backend in OURS), SDPA.name)


@dataclass(frozen=True)
class Plan:
    """What is measured, and for how long."""

    shapes: tuple[Shape, ...]
    lengths: tuple[Shape, ...]
    memory_lengths: tuple[Shape, ...]
    long: tuple[Shape, ...]
    budget: Budget
    lengths_budget: Budget
    peers: bool = True


FULL = Plan(TARGETS, LENGTHS, MEMORY_LENGTHS, LONG, Budget(), Budget(seconds=1.5))
QUICK = Plan(
    shapes=(Shape(2, 2, 96, 16),),
    lengths=(Shape(1, 2, 32, 16), Shape(1, 2, 128, 16)),
    memory_lengths=(),
    long=(),
    budget=Budget(seconds=0.1, most=5),
    lengths_budget=Budget(seconds=0.05, most=3),
)

Watch = Callable[[str, dict[str, Any]], None]


def run(plan: Plan, watch: Watch) -> dict[str, Any]:
    """Measure everything. `watch(part, record)` is told whenever a part of the record is complete."""
    active = active_backend()
    entrants = [one for one in EVERYONE if plan.peers or not one.package]
    record: dict[str, Any] = {
        "format": FORMAT,
        **provenance(),
        "peers": {one.package: package_version(one.package) for one in entrants if one.package},
        "backends": [status._asdict() for status in backends()],
        "active": active,
        "beta": BETA,
        "contestants": [],
        "shapes": [],
        "lengths": [],
        "memory": [],
        "long": [],
    }
    contestants: dict[Contestant, Attend] = {}
    widths = [shape.d for shape in (*plan.shapes, *plan.lengths)]
    for one in entrants:
        verdict = judge(one, widths)
        record["contestants"].append({"computes": one.computes, **asdict(verdict)})
        if verdict.passed:
            contestants[one] = one.load()
    watch("contestants", record)
    _time_shapes(record, plan, contestants, watch)
    _time_lengths(record, plan, contestants)
    _measure_memory(record, plan, {one.name for one in contestants})
    watch("lengths", record)
    if plan.long and f"{active} momentum" in {one.name for one in contestants}:
        record["long"] = _measure_long(f"{active} momentum", plan)
        watch("long", record)
    return record


def _time_shapes(record: dict[str, Any], plan: Plan, contestants: Mapping[Contestant, Attend], watch: Watch) -> None:
    for shape in plan.shapes:
        for direction in DIRECTIONS:
            record["shapes"].append(time_shape(shape, direction, contestants, plan.budget))
        watch("shapes", record)


def _time_lengths(record: dict[str, Any], plan: Plan, contestants: Mapping[Contestant, Attend]) -> None:
    """Momentum attention in each of our forms, and softmax."""
    few = {one: attend for one, attend in contestants.items() if one.name in LENGTH_NAMES}
    for shape in plan.lengths:
        for direction in DIRECTIONS:
            record["lengths"].append(time_shape(shape, direction, few, plan.lengths_budget))


def _measure_memory(record: dict[str, Any], plan: Plan, passed: set[str]) -> None:
    """The active backend at every shape; those compared by length at some lengths, where they were fast enough."""
    own = [one.name for one in OWN if one.name.startswith(record["active"]) and one.name in passed]
    wanted = [(name, shape) for shape in plan.shapes for name in own]
    for block in record["lengths"]:
        shape = Shape(*block["shape"])
        if block["direction"] == "forward+backward" and shape in plan.memory_lengths:
            wanted += [(row["name"], shape) for row in block["rows"] if "best" in row]
    record["memory"] = [measure(name, shape) for name, shape in dict.fromkeys(wanted)]


def _measure_long(name: str, plan: Plan) -> list[dict[str, Any]]:
    """Very long sequences, in float32 and in bfloat16; each length foretells what its double needs."""
    rows = []
    for dtype in ("float32", "bfloat16"):
        factor = 1.2
        for shape in plan.long:
            row = measure(name, shape, dtype, calls=3, factor=factor)
            factor = row.get("ratio", factor)
            rows.append(row)
    return rows


def write(record: Mapping[str, Any], path: Path) -> None:
    """Write the record as JSON; the file is replaced in one step."""
    make_folder(path.parent)
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    replace_file(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def read(path: Path, part: str = "shapes") -> dict[str, Any]:
    """A record, as `momentum bench --out` wrote it; `part` is "family" for one of `--family`."""
    try:
        record: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BenchError(f"{path} cannot be read: {error}") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT or part not in record:
        raise BenchError(f"{path} is not a record of `momentum bench`")
    return record


def package_version(package: str) -> str | None:
    """The installed version of a package; None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None

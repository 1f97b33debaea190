"""The family on this CPU: gate, times with one thread and with all, memory. One record comes out, ready for JSON."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from ..backend.choose import active_backend, backends
from ..training.provenance import provenance
from .contestants import BETA, FAMILY, Attend, Contestant, UnavailableError, inputs, our
from .gate import judge
from .measured_shapes import FAMILY_SHAPES, KDA_SHAPES, TOKENS, Shape
from .members import EXTRAS
from .memory import measure
from .suite import FORMAT, Watch, package_version
from .timing import DIRECTIONS, Budget, Direction, processor_seconds, time_shape

OTHERS = ("KDA", "one token")  # timed apart: KDA's peer fills the memory, and a token is no sequence


@dataclass(frozen=True)
class FamilyPlan:
    """What is measured, and for how long."""

    shapes: tuple[Shape, ...]
    kda: tuple[Shape, ...]
    tokens: tuple[Shape, ...]
    budget: Budget
    peers: bool = True

    def blocks(self) -> Iterator[tuple[str, Shape, Direction]]:
        """What is timed together: a group, at a shape, in a direction."""
        for shape in self.shapes:
            for direction in DIRECTIONS:
                yield "members", shape, direction
        for group, shapes in zip(OTHERS, (self.kda, self.tokens), strict=True):
            for shape in shapes:
                yield group, shape, "forward"

    def at(self, shapes: tuple[Shape, ...]) -> "FamilyPlan":
        """The same plan at other shapes."""
        tokens = tuple(dict.fromkeys(shape._replace(n=1) for shape in shapes))
        return replace(self, shapes=shapes, kda=shapes, tokens=tokens)


FULL_FAMILY = FamilyPlan(FAMILY_SHAPES, KDA_SHAPES, TOKENS, Budget(seconds=2.0, least=2, most=1000, call=60.0))
QUICK_FAMILY = FamilyPlan((), (), (), Budget(seconds=0.1, most=5)).at((Shape(1, 2, 96, 16),))


def run_family(plan: FamilyPlan, threads: int, watch: Watch) -> dict[str, Any]:
    """Measure everything, with one thread and with `threads`; `watch(part, record)` as in the suite."""
    entrants = [one for one in FAMILY if plan.peers or not one.package]
    record: dict[str, Any] = {
        "format": FORMAT,
        **provenance(),
        "peers": {one.package: package_version(one.package) for one in entrants if one.package},
        "backends": [status._asdict() for status in backends()],
        "active": active_backend(),
        "beta": BETA,
        "contestants": [],
        "family": [],
        "memory": [],
    }
    contestants: dict[Contestant, Attend] = {}
    for one in entrants:
        verdict = judge(one, [shape.d for _, shape, _ in plan.blocks()])
        if verdict.passed:
            contestants[one] = one.load()
            verdict = verdict if one.package else replace(verdict, reason=f"served by {served_by(one)}")
        record["contestants"].append({"computes": one.computes, **asdict(verdict)})
    watch("contestants", record)
    for group, shape, direction in plan.blocks():
        few = {one: attend for one, attend in contestants.items() if _group(one) == group}
        for count in sorted({1, threads}):
            torch.set_num_threads(count)
            clock = processor_seconds if count == 1 else time.perf_counter
            block = time_shape(shape, direction, few, plan.budget, clock=clock)
            record["family"].append({"group": group, "threads": count, **block})
        watch("family", record)
    torch.set_num_threads(1)
    record["memory"] = _memory(plan, contestants)
    return record


def served_by(contestant: Contestant) -> str:
    """Which of our backends answers a call, without gradients and with them."""
    *leaves, _ = inputs((1, 1, 1 if contestant.computes == "one token" else 4, 8), computes=contestant.computes)
    try:
        attend = our("native", contestant.computes).load()
    except UnavailableError:
        return "chunked"
    found = {}
    for direction, context in zip(DIRECTIONS, (torch.no_grad, torch.enable_grad), strict=True):
        try:
            with context():
                attend(*leaves)
            found[direction] = "native"
        except ValueError:
            found[direction] = "chunked"
    forward, both = found.values()
    return forward if forward == both or contestant.computes == "one token" else f"{forward}, with gradients by {both}"


def _group(contestant: Contestant) -> str:
    return contestant.computes if contestant.computes in OTHERS else "members"


def _memory(plan: FamilyPlan, contestants: Mapping[Contestant, Attend]) -> list[dict[str, Any]]:
    """Peak memory of forward and backward of our members, each in a process of its own."""
    ours = [one.name for one in contestants if not one.package and one.computes in EXTRAS and _group(one) == "members"]
    return [measure(name, shape) for shape in plan.shapes for name in ours]

"""What faults, odd input, crowds and Ctrl-C did, as tables of the docs."""

from ..report.tables import Table
from .record import commit_of
from .targets import Record

KILLS, MUTATIONS = 2_000, 20_000  # of a whole run of tests/faults and of tests/fuzz


def faults_table(result: Record) -> str:
    """Kills, crashes and full disks, by tests/faults."""
    costs = ("stuck", "lost", "different")
    cells = [(row["what"], f"{row['faults']:,}", *(str(row[cost]) for cost in costs)) for row in result["rows"]]
    total = [sum(row[name] for row in result["rows"]) for name in ("faults", *costs)]
    cells.append(("**all**", *(f"**{count:,}**" for count in total)))
    machine = result["machine"]
    commit = commit_of(machine)
    where = (
        f"{machine['cores']} cores ({machine['cpu']}, torch {machine['torch']}), {machine['started']}, commit {commit}"
    )
    table = Table("", ("what happened", "faults", *costs), tuple(cells)).markdown()
    kills = result["rows"][0]["faults"]
    rest = "" if kills >= KILLS else f" Not run to its end: {kills:,} of {KILLS:,} kills, of the rest a few."
    return f"{table}\n{where}.{rest} Command: `{result['command']}`.\n"


def fuzz_table(result: Record) -> str:
    """What tests/fuzz found, parser by parser."""
    columns = ("reader", "mutations", "read", "refused", "tracebacks and crashes", "slowest: s", "most memory: MB")
    rows = [
        (
            row["parser"],
            *(f"{row[name]:,}" for name in ("cases", "accepted", "refused", "failures")),
            f"{row['slowest']:.2f}",
            f"{row['largest'] / 2**20:.0f}",
        )
        for row in result["rows"]
    ]
    limits = result["limits"]
    said = (
        f"Over {limits['seconds']:g} s: {sum(row['slow'] for row in result['rows'])}; no process may take more than "
    )
    said += f"{limits['bytes'] / 2**20:.0f} MB. Times are of the processor."
    if fewer := [row for row in result["rows"] if row["cases"] < MUTATIONS]:
        said += f" {len(fewer)} readers have not been run to their {MUTATIONS:,} mutations yet."
    said += f" Command: `{result['command']}`."
    return f"{Table('', columns, tuple(rows)).markdown()}\n{said}\n"


def load_table(result: Record) -> str:
    """Honest viewers under load, by tests/load.py."""
    columns = ("others", "open after 1 s", "after their deadline", "viewers", "served", "median: s", "longest: s")
    kinds = {name: row for name, row in result["rows"].items() if name != "at once"}
    rows = [
        (
            f"{row['hostile']} {name}" if "hostile" in row else name,
            str(row.get("open_after_a_second", "")),
            str(row.get("open_after_a_deadline", "")),
            *(str(row[key]) for key in ("viewers", "served")),
            *(f"{row[key]:.2f}" for key in ("median_seconds", "longest_seconds")),
        )
        for name, row in kinds.items()
    ]
    crowd = result["rows"]["at once"]
    said = (
        f"{crowd['viewers']} viewers at once: {crowd['served']} served, {crowd['waited_in_the_queue']} of them after "
        f"waiting in the queue, {crowd['refused']} refused; the first line of an answer came after at most "
        f"{crowd['longest_to_the_first_line']:.1f} s, the last picture after {crowd['longest_seconds']:.1f} s. A "
        f"picture takes about 50 ms here, and all clients have one address. Command: `{result['command']}`."
    )
    return f"{Table('', columns, tuple(rows)).markdown()}\n{said}\n"


def border_table(result: Record) -> str:
    """Ctrl-C in native calls, by bench/interrupted_calls.py."""
    columns = ("call", "alone: s", "listening for Ctrl-C: s", "Ctrl-C to its end, median: s", "longest: s")
    rows = [
        (row["call"], *(f"{row[key]:.3f}" for key in ("seconds", "listening", "median_delay", "most_delay")))
        for row in result["rows"]
    ]
    machine = result["machine"]
    said = (
        f"One sequence of {result['tokens']:,} tokens, d = {result['width']}, on one thread of {machine['cpu']}; the "
        f"machine had other work. The library's checksum takes {1000 * result['checksum_seconds']:.1f} ms, "
        f"once a process. Command: `{result['command']}`."
    )
    return f"{Table('', columns, tuple(rows)).markdown()}\n{said}\n"

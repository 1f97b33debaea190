"""Every parser on damaged and malicious inputs: python -m tests.fuzz [--mutations 20000] [--only NAME] [--out FILE]"""

import argparse
import json
import sys
from pathlib import Path

from .parsers import parsers
from .workers import MOST_BYTES, MOST_SECONDS, fuzz

MUTATIONS = 20_000
COMMAND = "python -m tests.fuzz --out results/fuzz.json"


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--mutations", type=int, default=MUTATIONS)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--only", help="how names of parsers begin; others in --out stay as they are")
    arguments.add_argument("--left", action="store_true", help="parsers alone that --out does not have yet")
    arguments.add_argument("--out", type=Path, help="JSON, to which every parser is added as it ends")
    given = arguments.parse_args()
    bad = 0
    keeps = (given.only or given.left) and given.out and given.out.exists()
    rows = json.loads(given.out.read_text())["rows"] if keeps else []
    there = {row["parser"] for row in rows} if given.left else set()
    for parser in parsers():
        if (given.only and not parser.name.startswith(given.only)) or parser.name in there:
            continue
        found = fuzz(parser, given.mutations, given.seed)
        bad += len(found.failures) + len(found.slow)
        row = vars(found) | {"failures": len(found.failures), "slow": len(found.slow)}
        rows = [*(other for other in rows if other["parser"] != parser.name), row]
        print(  # noqa: T201 (a table on the terminal)
            f"{parser.name:16} {found.cases:7,} cases {found.accepted:7,} read {found.refused:7,} refused "
            f"{len(found.failures):4} failures {found.slowest:6.2f} s {found.largest / 2**20:6.0f} MB",
            flush=True,
        )
        for line in (*found.failures[:10], *found.slow[:10]):
            print(f"    {line}", flush=True)  # noqa: T201
        if given.out:
            limits = {"seconds": MOST_SECONDS, "bytes": MOST_BYTES}
            record = {"command": COMMAND, "mutations": given.mutations, "seed": given.seed, "limits": limits}
            given.out.write_text(json.dumps(record | {"rows": rows}, indent=1) + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

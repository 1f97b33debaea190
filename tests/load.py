"""The page under load: python -m tests.load [--out FILE]

Honest viewers come while others hold connections open: silent ones, half a head, half a body, complete requests that
read nothing. Then many viewers come at once. All clients have one address here, which is the hardest case.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from momentum_transformer.web.page_models import Picture
from momentum_transformer.web.studio import Studio

from .web.fake import FakeModel, ask, serving

HOSTILE = 500  # connections
VIEWERS = 200
HONEST = 20
HEAD = b"POST /draw HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
KINDS = {
    "silent": b"",
    "half a head": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ",
    "half a body": HEAD + b"Content-Length: 500\r\n\r\n{",
    "no request": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}


async def hold(port: int, message: bytes, closed: Counter[str]) -> None:
    """A connection that says this and no more, until it is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(message)
        await writer.drain()
        await reader.read()
    except OSError:
        pass
    finally:
        closed["closed"] += 1
        writer.close()


async def draw(port: int, viewer: str, seconds: float = 120) -> dict[str, Any]:
    """One honest request: its status, how long it took to the first line and to the last, and whether it waited."""
    started = time.perf_counter()
    body = json.dumps(ask(viewer=viewer)).encode()
    first, waited, lines = None, False, 0
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            status = int((await reader.readline()).split()[1])
            while line := await reader.readline():
                if line.startswith(b"{"):
                    first = first or time.perf_counter() - started
                    waited = waited or b'"waiting"' in line
                    lines += 1
            writer.close()
    except (OSError, IndexError, TimeoutError) as error:
        return {"status": type(error).__name__}
    return {"status": status, "first": first, "last": time.perf_counter() - started, "waited": waited, "lines": lines}


async def honest(port: int) -> dict[str, Any]:
    """Some viewers, one after the other."""
    answers = [await draw(port, f"honest-{number:04}") for number in range(HONEST)]
    served = [answer for answer in answers if answer["status"] == 200]
    seconds = [answer["last"] for answer in served]
    return {
        "viewers": HONEST,
        "served": len(served),
        "median_seconds": statistics.median(seconds) if seconds else None,
        "longest_seconds": max(seconds, default=None),
    }


async def under(port: int, message: bytes) -> dict[str, Any]:
    """Honest viewers while HOSTILE connections are held."""
    closed: Counter[str] = Counter()
    held = [asyncio.create_task(hold(port, message, closed)) for _ in range(HOSTILE)]
    await asyncio.sleep(1)
    found = await honest(port) | {"hostile": HOSTILE, "open_after_a_second": HOSTILE - closed["closed"]}
    await asyncio.wait(held, timeout=30)
    found["open_after_a_deadline"] = sum(not task.done() for task in held)
    for task in held:
        task.cancel()
    await asyncio.gather(*held, return_exceptions=True)
    return found


async def crowd(port: int) -> dict[str, Any]:
    """VIEWERS at once."""
    answers = await asyncio.gather(*(draw(port, f"viewer-{number:04}") for number in range(VIEWERS)))
    statuses = Counter(str(answer["status"]) for answer in answers)
    served = [answer for answer in answers if answer["status"] == 200]
    return {
        "viewers": VIEWERS,
        "served": len(served),
        "waited_in_the_queue": sum(answer["waited"] for answer in served),
        "refused": VIEWERS - len(served),
        "statuses": dict(statuses),
        "longest_to_the_first_line": max((answer["first"] or 0.0 for answer in served), default=None),
        "longest_seconds": max((answer["last"] for answer in served), default=None),
    }


def measured(run: Callable[[int], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    """On a server of its own; a picture takes about 50 ms."""
    with serving(Studio([FakeModel(picture=Picture(7, 7, 1), pause=0.001)])) as port:
        return asyncio.run(_run(run, port))


async def _run(run: Callable[[int], Awaitable[dict[str, Any]]], port: int) -> dict[str, Any]:
    return await run(port)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--out", type=Path)
    given = arguments.parse_args()
    rows: dict[str, Any] = {"nobody else": measured(honest)}
    for name, message in KINDS.items():

        async def held(port: int, message: bytes = message) -> dict[str, Any]:
            return await under(port, message)

        rows[name] = measured(held)
    rows["at once"] = measured(crowd)
    for name, row in rows.items():
        sys.stdout.write(f"{name}: {json.dumps(row)}\n")
    if given.out:
        record = {"command": "python -m tests.load --out results/load.json", "rows": rows}
        given.out.write_text(json.dumps(record, indent=1) + "\n")
    with suppress(TypeError):
        return 0 if all(row["served"] == row["viewers"] for row in rows.values()) else 1
    return 1


if __name__ == "__main__":
    sys.exit(main())

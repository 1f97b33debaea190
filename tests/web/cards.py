"""Where the page shows what a model has done."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def card(name: str) -> str:
    return f'.card:has(h2:text-is("{name}"))'


def number(page: Any, name: str, kind: str) -> str:
    text: str = page.locator(f'{card(name)} [data-number="{kind}"]').text_content()
    return text


@contextmanager
def answered(page: Any) -> Iterator[None]:
    """Waits for the end of the answer to what is asked inside.

    Where the page has read the end before Chromium has heard of it, Chromium calls the request failed.
    """
    ended: list[Any] = []
    for event in ("requestfinished", "requestfailed"):
        page.on(event, lambda request: ended.append(request))
    yield
    while not ended:
        page.wait_for_timeout(50)

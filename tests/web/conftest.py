"""Pages in a browser."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests import browsers


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browsers.chromium() as started:
        yield started


@pytest.fixture
def new_page(browser: Any) -> Iterator[Callable[[], Any]]:
    pages: list[Any] = []

    def opened() -> Any:
        pages.append(browsers.new_page(browser, viewport={"width": 1280, "height": 900}, reduced_motion="reduce"))
        return pages[-1]

    yield opened
    for page in pages:
        page.close()


@pytest.fixture
def page(new_page: Callable[[], Any], home: str, first_model: str) -> Iterator[Any]:
    """The page at `home`, which shows `first_model`; it must not log an error nor ask anyone else for anything."""
    page = new_page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith(home) else problems.append(request.url))
    page.goto(home)
    page.get_by_role("checkbox", name=first_model).wait_for()
    yield page
    assert not problems

"""A browser for the tests that need one."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("there is no chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
        browser.close()


@pytest.fixture
def page(browser: Any, home: str, first_model: str) -> Iterator[Any]:
    """The page at `home`, which shows `first_model`; it must not log an error nor ask anyone else for anything."""
    page = browser.new_page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith(home) else problems.append(request.url))
    page.goto(home)
    page.get_by_role("checkbox", name=first_model).wait_for()
    yield page
    assert not problems
    page.close()

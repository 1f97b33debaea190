"""A browser for the tests that need one."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

PATIENCE = 120  # seconds until what a page is to show counts as never shown; a busy machine is slow


@contextmanager
def chromium() -> Iterator[Any]:
    """Debian's Chromium; without it, or without playwright, the test skips."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("there is no chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--disable-gpu"], timeout=1000 * PATIENCE
        )
        yield started
        started.close()


def new_page(browser: Any, **options: Any) -> Any:
    """A page that shares nothing with others: cookies, size, a clock that a test may stop."""
    page = browser.new_page(**options)
    page.set_default_timeout(1000 * PATIENCE)
    return page

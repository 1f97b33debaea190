"""Where the page shows what a model has done."""

from typing import Any


def card(name: str) -> str:
    return f'.card:has(h2:text-is("{name}"))'


def number(page: Any, name: str, kind: str) -> str:
    text: str = page.locator(f'{card(name)} [data-number="{kind}"]').text_content()
    return text

"""Where the page shows what a model has done."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

NOTE_THE_END = """() => {
  const { read } = ReadableStreamDefaultReader.prototype;
  window.theEnd = new Promise((resolve) => {
    ReadableStreamDefaultReader.prototype.read = async function () {
      const part = await read.call(this);
      if (part.done) resolve();
      return part;
    };
  });
}"""


def card(name: str) -> str:
    return f'.card:has(h2:text-is("{name}"))'


def number(page: Any, name: str, kind: str) -> str:
    text: str = page.locator(f'{card(name)} [data-number="{kind}"]').text_content()
    return text


@contextmanager
def answered(page: Any) -> Iterator[None]:
    """Waits until the page has read the end of the answer to what is asked inside.

    Chromium's news of the request says less: it may come before that, or say that the request failed.
    """
    page.evaluate(NOTE_THE_END)
    yield
    page.evaluate("window.theEnd")

"""The site: `make site` builds it without a warning, it is whole, and reading it needs no network."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from .browsers import chromium

for package in ("zensical", "mkdocstrings", "latex2mathml"):
    pytest.importorskip(package, reason="the extra docs is not installed")

ROOT = Path(__file__).parent.parent
FETCHED = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data"}


class Page(HTMLParser):
    """What a page links to, what it makes the browser fetch, and which places in it have a name."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.names: set[str] = {""}
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.names.add(given.get("id", ""))
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if FETCHED.get(tag, "") in given:
            self.fetched.append(given[FETCHED[tag]])


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The site, built in a copy of what it is made of, and what the build has said; a proxy that is not there stops
    whatever would ask the network."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy(ROOT / "zensical.toml", folder)
    (folder / "src").symlink_to(ROOT / "src")
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    done = subprocess.run(command, cwd=folder, env=os.environ | nowhere, capture_output=True, text=True, timeout=200)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return folder / "site", said


@pytest.fixture(scope="module")
def pages(built: tuple[Path, str]) -> dict[Path, Page]:
    return {path: Page(path.read_text()) for path in built[0].rglob("*.html")}


def test_the_build_has_no_warnings(built: tuple[Path, str]) -> None:
    assert "No issues found" in built[1]
    assert not re.search(r"warning|error|griffe|deprecat", built[1], flags=re.IGNORECASE)


def test_every_page_is_built_and_can_be_reached(built: tuple[Path, str], pages: dict[Path, Page]) -> None:
    reached = {link.split("#")[0] for link in pages[built[0] / "index.html"].links}
    for source in (ROOT / "docs").glob("*.md"):
        assert (built[0] / f"{source.stem}.html").is_file()
        assert source.stem == "index" or f"{source.stem}.html" in {link.removeprefix("./") for link in reached}


def test_links_and_anchors_of_the_site_lead_somewhere(pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        if path.name == "404.html":  # its links start at the root of a server
            continue
        for link in page.links:
            if re.match(r"\w+:", link):
                continue
            name, _, anchor = unquote(link).partition("#")
            other = (path.parent / name).resolve() if name else path
            other = other / "index.html" if other.is_dir() else other
            assert other.exists(), (path.name, link)
            assert other not in pages or anchor in pages[other].names, (path.name, link)


def test_reading_the_site_needs_no_network(built: tuple[Path, str], pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        assert [place for place in page.fetched if re.match(r"\w+:|//", place) and not place.startswith("data:")] == []
        assert "https://" not in re.sub(
            r"<a .*?>|<code.*?</code>|<pre.*?</pre>", "", path.read_text(), flags=re.DOTALL
        )
    styles = "".join(path.read_text() for path in built[0].rglob("*.css"))
    assert not re.search(r"@import|url\(['\"]?(https?:)?//", styles)


def test_formulas_are_rendered_when_the_site_is_built(built: tuple[Path, str]) -> None:
    page = (built[0] / "derivations.html").read_text()
    assert page.count('<div class="formula"') == (ROOT / "docs" / "derivations.md").read_text().count("```math")
    assert page.count("<math ") > 150
    home = (built[0] / "index.html").read_text()
    assert home.split('<div class="formula"')[1].split("</div>")[0].count("<span><math ") == 3  # parts that may wrap
    text = re.sub(r"<(code|pre|script).*?</\1>", "", page, flags=re.DOTALL)
    assert "$" not in text
    assert "\\" not in text


def test_names_in_tables_break_where_their_parts_meet_and_sizes_nowhere(built: tuple[Path, str]) -> None:
    page = (built[0] / "paper-to-code.html").read_text()
    assert "<code>momentum_<wbr />transformer.<wbr />layers.<wbr />block.<wbr />Attention</code>" in page
    assert "<code>tests/<wbr />models/<wbr />test_<wbr />encoder.py::<wbr />test_" in page
    assert '<span class="unbroken">--source</span> <span' in (built[0] / "own-data.html").read_text()
    assert '<td class="unbroken">(64, 8, 128, 32)</td>' in (built[0] / "performance.html").read_text()


def test_figures_that_move_are_part_of_their_page(built: tuple[Path, str]) -> None:
    page = (built[0] / "idea.html").read_text()
    assert page.count('<figure class="moving"><svg') == len(list((ROOT / "docs" / "figures").glob("moving-*.svg")))


def test_the_reference_shows_signatures(built: tuple[Path, str]) -> None:
    page = (built[0] / "api.html").read_text()
    for name in ("momentum_attention", "GatedDeltaAttention", "nn.TransformerEncoderLayer", "hf.accelerate"):
        assert f'id="momentum_transformer.{name}"' in page


@pytest.fixture
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.mark.slow
def test_pages_from_a_folder_fit_a_phone_and_fetch_nothing(built: tuple[Path, str], browser: Any) -> None:
    phone = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark")
    for path in sorted(built[0].glob("*.html")):
        if path.name == "404.html":
            continue
        asked: list[str] = []
        said: list[str] = []
        page = phone.new_page()
        page.on("request", lambda request, asked=asked: asked.append(request.url))
        page.on("console", lambda message, said=said: said.append(message.text))
        page.goto(path.as_uri())
        page.wait_for_load_state("load")
        assert [url for url in asked if not url.startswith(("file:", "data:", "about:"))] == [], path.name
        assert said == [], path.name
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path.name
        cut = "[...document.querySelectorAll('.formula')].filter(one => one.scrollWidth > one.clientWidth).length"
        if path.name in ("index.html", "idea.html"):
            assert page.evaluate(cut) == 0, f"a formula of {path.name} does not fit"
        page.close()


@pytest.mark.slow
def test_search_works_from_a_folder(built: tuple[Path, str], browser: Any) -> None:
    page = browser.new_page()
    page.goto((built[0] / "install.html").as_uri())
    page.wait_for_timeout(1000)
    page.keyboard.press("Control+k")
    page.keyboard.type("forgets the right thing")
    page.get_by_text("Why the delta rule forgets the right thing").first.wait_for(timeout=20_000)


SHOWN = "[...document.querySelectorAll('#weights .frame')].map(f => getComputedStyle(f).visibility)"


@pytest.mark.slow
def test_a_figure_moves_steps_and_stands_still_for_who_wants_that(built: tuple[Path, str], browser: Any) -> None:
    place = (built[0] / "idea.html").as_uri()
    still = browser.new_context(reduced_motion="reduce").new_page()
    still.goto(place)
    assert still.evaluate(SHOWN).index("visible") == still.evaluate(SHOWN + ".length") - 1
    slider = still.locator("figure.moving input").nth(1)
    slider.evaluate("node => { node.value = 2; node.dispatchEvent(new Event('input')) }")
    assert [frame == "visible" for frame in still.evaluate(SHOWN)].index(True) == 2
    assert still.evaluate(SHOWN).count("visible") == 1
    moving = browser.new_context(reduced_motion="no-preference").new_page()
    moving.goto(place)
    before = moving.evaluate(SHOWN).index("visible")
    moving.wait_for_function(f"({SHOWN}).indexOf('visible') !== {before}")

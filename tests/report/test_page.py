"""The report's page: broken runs, what the headline may say, runs side by side, values under the pointer."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest

from momentum_transformer.experiments import REPRODUCTIONS
from momentum_transformer.experiments.runs import Request
from momentum_transformer.report.figures import svg
from momentum_transformer.report.interactive import interactive, on_dark
from momentum_transformer.report.page import write_report
from momentum_transformer.report.tables import Table
from momentum_transformer.training.run_directory import RunError

from ..browsers import chromium, new_page
from ..web.contrast import CONTRAST
from .made_up import add_run

TEXT = "ROMEO:\n<b>Speak</b> & be heard"


def add(root: Path, model: str, seed: int, loss: float, *, settings: tuple[str, ...] = ()) -> Path:
    """A finished run of no study that ends at this loss."""
    request = Request("recall", model, "tiny", seed, settings)
    add_run(root, request, {"loss": loss})
    return request.directory(root)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models that all seeds tell apart, and one that they do not."""
    root = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        add(root, "softmax", seed, 1.6 + seed / 100)
        run = add(root, "gated-delta", seed, 1.2 + seed / 100)
        (run / "samples.jsonl").write_text(
            "".join(
                json.dumps({"step": step, "text": text}) + "\n" for step, text in ((0, "before the last"), (9, TEXT))
            )
        )
    return root


def test_the_headline_has_what_all_seeds_agree_on(runs: Path, tmp_path: Path) -> None:
    page, _ = write_report([runs], tmp_path)
    headline = re.search(r'<div class="headline">.*?</div>', page.read_text())
    assert headline is not None
    assert "gated-delta has a lower loss than softmax, the next (<a" in headline[0]


@pytest.mark.parametrize(
    ("first", "second"), [((1.2, 1.7), (1.6, 1.8)), ((1.2,), (1.6,))], ids=["overlap", "one seed"]
)
def test_the_headline_has_nothing_that_seeds_disagree_on_or_only_one_says(
    tmp_path: Path, first: tuple[float, ...], second: tuple[float, ...]
) -> None:
    for seed, (better, worse) in enumerate(zip(first, second, strict=True)):
        add(tmp_path / "runs", "gated-delta", seed, better)
        add(tmp_path / "runs", "softmax", seed, worse)
    page, _ = write_report([tmp_path / "runs"], tmp_path / "report")
    text = page.read_text()
    assert "No comparison here comes out the same way in every pair of seeds." in text
    assert "gated-delta has a lower loss than softmax, the next: " in text  # with its doubts, in the section


def test_runs_of_one_setting_are_one_line_with_their_spread(runs: Path, tmp_path: Path) -> None:
    again = tmp_path / "again" / "recall" / "softmax" / "tiny-seed0"
    shutil.copytree(runs / "recall" / "softmax" / "tiny-seed0", again)
    add(tmp_path / "again", "softmax", 0, 1.5, settings=("train.steps=7",))
    write_report([runs, tmp_path / "again"], tmp_path / "report")
    lines = (tmp_path / "report" / "recall-tiny-runs.md").read_text().splitlines()
    assert lines[0].endswith("| seed numbers |")
    assert lines[2].startswith("| softmax | 1.6033 ± 0.0050 |")
    assert lines[2].endswith("| 0, 1 (3 runs) |")
    assert lines[3].startswith("| softmax, train.steps=7 | 1.5000 |")
    assert lines[4].startswith("| gated-delta | 1.2050 ± 0.0050 |")


def test_what_models_wrote_is_in_the_page(runs: Path, tmp_path: Path) -> None:
    page, _ = write_report([runs], tmp_path)
    assert (
        "<pre>ROMEO:\n&lt;b&gt;Speak&lt;/b&gt; &amp; be heard</pre><figcaption>gated-delta</figcaption>"
        in page.read_text()
    )
    assert "before the last" not in page.read_text()


def test_models_of_one_text_are_compared_by_its_bytes_whatever_their_tokens_are(tmp_path: Path) -> None:
    for units, bits in (("bytes", 2.5), ("characters", 2.0)):
        for source in ("one.txt", "two.txt"):
            settings = (f"data.source={source}", f"data.units={units}")
            request = Request("text", "gated-delta", "tiny", 0, settings)
            add_run(tmp_path / "runs", request, {"bits_per_byte": bits}, loss=bits if units == "bytes" else 9.0)
    page, _ = write_report([tmp_path / "runs"], tmp_path / "report")
    text = page.read_text()
    assert "Language models of text: one.txt, scale tiny" in text
    better = "gated-delta, data.units=characters has fewer bits a byte than gated-delta, data.units=bytes, the next: "
    assert text.count(better) == 2
    assert "No comparison here comes out the same way in every pair of seeds." in text


def test_a_score_that_is_the_loss_once_more_has_no_column(tmp_path: Path) -> None:
    request = Request("text", "momentum", "tiny", 0, ("data.source=my.txt",))
    add_run(tmp_path / "runs", request, {"loss": 2.0, "bits_per_byte": 2.9, "nats_per_character": 2.0}, loss=2.0)
    write_report([tmp_path / "runs"], tmp_path / "report")
    header = (tmp_path / "report" / "text-tiny-1-runs.md").read_text().splitlines()[0]
    assert "test bits per byte" in header
    assert "test nats" not in header


def test_the_cells_of_a_confusion_matrix_say_what_they_are_and_follow_the_theme(tmp_path: Path) -> None:
    request = Request("table", "momentum", "tiny", 0, ("data.source=my.csv",))
    add_run(tmp_path / "runs", request, {"accuracy": 0.7, "f1": 0.7})
    labels, counts = ["ham", "spam"], [[8, 2], [4, 6]]
    line = {"kind": "confusion", "step": 9, "labels": labels, "counts": counts, "f1": {"ham": 0.7, "spam": 0.7}}
    with (request.directory(tmp_path / "runs") / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    page, _ = write_report([tmp_path / "runs"], tmp_path / "report")
    text = page.read_text()
    assert 'data-says="spam taken for ham: 4 rows, 40.0 %"' in text
    assert 'class="headline"' not in text  # nothing is compared
    assert "<image" not in text


def test_the_section_of_text_shows_what_models_wrote(tmp_path: Path) -> None:
    request = Request("text", "softmax", "tiny")
    add_run(tmp_path / "runs", request, dict.fromkeys(("nats_per_character", "bits_per_byte", "perplexity"), 2.0))
    (request.directory(tmp_path / "runs") / "samples.jsonl").write_text(json.dumps({"step": 9, "text": TEXT}) + "\n")
    page, _ = write_report([tmp_path / "runs"], tmp_path / "report")
    assert '<section id="text-tiny">' in page.read_text()
    assert "<pre>ROMEO:" in page.read_text()


def test_provenance_is_a_table(runs: Path, tmp_path: Path) -> None:
    one = tmp_path / "one"
    shutil.copytree(runs, one)
    versions = {"momentum-transformer": "0.9", "torch": "2.9", "numpy": None}
    origin = {"commit": "0123456789abcdef", "dirty": True, "cpu": "A <processor>", "cores": 2, "versions": versions}
    (one / "recall" / "softmax" / "tiny-seed0" / "provenance.json").write_text(json.dumps(origin))
    page, _ = write_report([one], tmp_path / "report")
    cells = ("0123456789ab with changes", "1", "A &lt;processor&gt;", "2", "0.9", "2.9")  # no column says nothing
    shown = page.read_text().replace(' class="words"', "")
    assert "".join(f"<td>{cell}</td>" for cell in cells) in shown
    assert "<td>not known</td><td>3</td>" in shown


def test_columns_that_say_nothing_are_left_out_and_words_stand_to_the_left() -> None:
    table = Table("t", ("model", "steps to 90 %", "GPU", "text"), (("a", "3", "–", "ein"), ("b", "–", "", "zwei")))
    assert table.markdown().splitlines()[:2] == ["| model | steps to 90 % | text |", "|---|---:|---|"]
    assert '<th>steps to 90&nbsp;%</th><th class="words">text</th>' in table.html()
    assert '<td>3</td><td class="words">ein</td>' in table.html()


def spoil(run: Path, file: str, content: bytes) -> None:
    (run / file).parent.mkdir(exist_ok=True)
    (run / file).write_bytes(content)


BROKEN = {
    "configuration": ("config.json", b"{", "config.json cannot be read"),
    "configuration without its parts": ("config.json", b"{}", "config.json has no 'experiment'"),
    "another kind of file": ("config.json", b"[]", "it holds no object"),
    "provenance": ("provenance.json", b"\xff", "provenance.json cannot be read"),
    "metrics": ("metrics.jsonl", b'{"kind": "end"\n{"kind": "end", "step": 1}\n', "line 1 is not JSON"),
    "metrics in another encoding": ("metrics.jsonl", b"\xff\xfe\n\x00\n", "metrics.jsonl cannot be read"),
    "metrics of no kind": (
        "metrics.jsonl",
        b"{}\n[]\n",
        "metrics.jsonl cannot be read: line 1 is no object with a kind",
    ),
    "no evaluation": (
        "metrics.jsonl",
        b'{"kind": "end", "step": 1, "seconds": 1}\n',
        "metrics.jsonl has no evaluation",
    ),
    "no numbers": (
        "metrics.jsonl",
        b'{"kind": "validation", "step": 1, "loss": "low"}\n{"kind": "end", "step": 1}\n',
        "line 1 has no loss",
    ),
    "no loss": (
        "metrics.jsonl",
        b'{"kind": "validation", "step": 1}\n{"kind": "end", "step": 1}\n',
        "line 1 has no loss",
    ),
    "loss beyond floats": (
        "metrics.jsonl",
        b'{"kind": "validation", "step": 1, "loss": 1%s}\n{"kind": "end", "step": 1}\n' % (b"0" * 400),
        "line 1 has no loss",
    ),
    "losses that are not numbers": (
        "metrics.jsonl",
        b'{"kind": "validation", "step": 1, "loss": NaN}\n{"kind": "end", "step": 1}\n',
        "has no evaluation whose loss is a finite number",
    ),
    "evaluations before the first step": (
        "metrics.jsonl",
        b'{"kind": "validation", "step": 0, "loss": 1}\n{"kind": "end", "step": 1, "cpu_seconds": 1}\n',
        "has no evaluation after step 0",
    ),
    "checkpoint": ("checkpoint/best.safetensors", b"\x08", "best.safetensors is damaged"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_run_is_named_and_left_out(runs: Path, tmp_path: Path, case: str) -> None:
    file, content, reason = BROKEN[case]
    shutil.copytree(runs, tmp_path / "runs")
    victim = tmp_path / "runs" / "recall" / "softmax" / "tiny-seed0"
    spoil(victim, file, content)
    page, left_out = write_report([tmp_path / "runs"], tmp_path / "report")
    (line,) = left_out
    assert line.startswith(str(victim))
    assert reason in line
    assert "\n" not in line
    assert ">softmax</td>" in page.read_text()  # its other seed
    assert reason.replace("'", "&#x27;") in page.read_text()


def test_where_all_runs_are_broken_the_first_reason_is_said(tmp_path: Path) -> None:
    run = add(tmp_path, "softmax", 0, 1.0)
    spoil(run, "metrics.jsonl", b"{}\n")
    with pytest.raises(
        RunError, match=r"no finished run in .* \(.*line 1 is no object with a kind.*\); train one first"
    ):
        write_report([tmp_path], tmp_path / "report")


def test_samples_that_cannot_be_read_are_left_out(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs, tmp_path / "runs")
    spoil(tmp_path / "runs" / "recall" / "gated-delta" / "tiny-seed0", "samples.jsonl", b"\xff{")
    page, left_out = write_report([tmp_path / "runs"], tmp_path / "report")
    assert not left_out
    assert "<pre>" not in page.read_text()


@pytest.mark.parametrize("colour", ["000000", "0072b2", "6a3d9a", "01665e", "4d4d4d", "b2182b"])
def test_colours_of_lines_stand_out_on_a_dark_page(colour: str) -> None:
    def luminance(text: str) -> float:
        parts = [int(text[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    assert (luminance(on_dark(colour)) + 0.05) / (luminance("#14141b") + 0.05) > 3


def test_hatched_bars_have_the_colours_of_the_page() -> None:
    figure, axis = plt.subplots()
    axis.bar([0], [1], color="#0072b2", hatch="///", edgecolor="white")
    drawn = svg(figure)
    assert 'fill="#0072b2"' in drawn
    shown = interactive(figure, drawn)
    assert "fill: var(--c-0072b2)" in shown
    assert "stroke: var(--c-ffffff)" in shown
    assert 'fill="#' not in shown


@pytest.fixture(scope="module")
def opened(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The page in a browser, which it may not leave."""
    with chromium() as browser:
        path, _ = write_report([runs], tmp_path_factory.mktemp("report"))
        page = new_page(browser, viewport={"width": 1200, "height": 900})
        problems: list[str] = []
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: None if request.url.startswith("file:") else problems.append(request.url))
        page.goto(path.as_uri())
        yield page
        assert not problems


def test_a_point_says_its_values_under_the_pointer(opened: Any) -> None:
    points = opened.locator(".hit")
    assert points.count() == 6  # two lines of three evaluations
    assert opened.locator("#tip").is_hidden()
    says = points.nth(2).get_attribute("data-says")
    assert says == "softmax: training steps 1,200, validation loss 1.605"
    points.nth(2).hover()
    assert opened.locator("#tip").text_content() == says
    box, tip = points.nth(2).bounding_box(), opened.locator("#tip").bounding_box()
    assert abs(tip["y"] + tip["height"] - box["y"]) < 40  # beside the point
    opened.mouse.move(5, 5)
    assert opened.locator("#tip").is_hidden()


def test_points_lie_on_their_line(opened: Any) -> None:
    """A circle's centre is where the line that was drawn bends or ends."""
    missed = opened.evaluate(
        """() => [...document.querySelectorAll(".hit")].filter((hit) => {
          const near = [...document.querySelectorAll('[id^="line2d"] path[clip-path]')].map((line) => {
            const numbers = line.getAttribute("d").match(/-?[0-9.]+/g).map(Number);
            const [x, y] = [hit.cx.baseVal.value, hit.cy.baseVal.value];
            return Math.min(...numbers.flatMap((at, i) => (i % 2 ? [] : [Math.hypot(at - x, numbers[i + 1] - y)])));
          });
          return Math.min(...near) > 0.6;
        }).length"""
    )
    assert missed == 0


def test_the_page_fits_a_phone_and_stands_out_in_light_and_dark(opened: Any) -> None:
    for width in (320, 390, 1200):
        opened.set_viewport_size({"width": width, "height": 800})
        assert opened.evaluate("document.documentElement.scrollWidth") <= width
        drawn = opened.evaluate(
            """() => [...document.querySelectorAll("section > figure > svg")].map((one) =>
              one.getBoundingClientRect().width / one.viewBox.baseVal.width)"""
        )
        assert drawn, width
        assert all(abs(scale - 4 / 3) < 0.01 for scale in drawn), width  # a point of its letters is a point
    assert "gradient" in opened.evaluate("getComputedStyle(document.querySelector('.scroll')).backgroundImage")
    grounds = []
    for scheme in ("light", "dark"):
        opened.emulate_media(color_scheme=scheme)
        assert opened.evaluate(CONTRAST) == []
        grounds.append(opened.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert grounds[0] != grounds[1]


def test_the_table_of_text_says_which_models_have_not_run(tmp_path: Path) -> None:
    scores = dict.fromkeys(("nats_per_character", "bits_per_byte", "perplexity"), 2.0)
    for variant in REPRODUCTIONS["text"].variants[:-1]:
        add_run(tmp_path / "runs", Request("text", variant.model, "tiny", 0, variant.settings), scores)
    write_report([tmp_path / "runs"], tmp_path / "report")
    lines = (tmp_path / "report" / "text-tiny.md").read_text().splitlines()
    assert lines[0].startswith("| model | parameters | rate | of rates tried | nats a character |")
    assert "CPU minutes" in lines[0]
    assert any(line.startswith("| gated-delta |") for line in lines)
    assert any(line.startswith("| softmax with convolution |") for line in lines)
    assert lines[-1] == "- The study is under way. Not run yet: momentum-delta without decay."

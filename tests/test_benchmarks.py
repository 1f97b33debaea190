"""Benchmarks measure what they say, and note it where the report looks for it."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from momentum_transformer.bench import blocks, contexts
from momentum_transformer.bench import decoding_speed as decoding
from momentum_transformer.bench import kernel_profile as profile
from momentum_transformer.bench import older_version as versions
from momentum_transformer.bench import sequence_scaling as scaling
from momentum_transformer.bench import translation_speed as translation
from momentum_transformer.bench.attention_tables import contestants_table, terminal
from momentum_transformer.bench.picture_speed import MEMBERS, measure, subjects, trained, untrained
from momentum_transformer.experiments.pictures.picture_task import PICTURE_MODELS
from momentum_transformer.experiments.runs import Request, run_training
from momentum_transformer.experiments.translation.translation_scales import TRANSLATION_MODELS


def test_generation_measures_every_model_and_softmax_both_ways() -> None:
    said: list[str] = []
    rows = measure(subjects(untrained("digits", "tiny"), [1, 2], [1]), 1, said.append)
    ways = [(row["model"], row["method"], row["batch"]) for row in rows]
    assert ways[:3] == [("softmax", "cache", 1), ("softmax", "cache", 2), ("softmax", "recompute", 1)]
    drawn = [way for way in ways[3:] if way[1] == "recurrent"]
    assert drawn == [(model, "recurrent", batch) for model in (*PICTURE_MODELS[1:], *MEMBERS) for batch in (1, 2)]
    bare = [way for way in ways if way[1] == "matrices"]
    assert bare == [(model, "matrices", batch) for model in ("linear", *MEMBERS) for batch in (1, 2)]
    assert all(row["images_per_second"] > 0 for row in rows)
    kept = {row["model"]: row["bytes_per_image"] for row in rows if row["batch"] == 2 and row["method"] != "matrices"}
    layers, heads, width, n = 2, 2, 8, 16
    assert kept["softmax"] == layers * (2 * heads * width * n * 4 + n) + 8
    assert kept["linear"] == layers * (heads * width * width + heads * width) * 4 + 8
    assert kept["momentum"] == layers * (2 * heads * width * width + heads * width) * 4 + 8
    for row in rows:  # a picture takes what is kept of it, and some buffers
        assert row["method"] == "matrices" or row["bytes_per_image"] < row["memory_per_image"]
    assert said == ["round 0 of 1", "round 1 of 1"]


def test_trained_runs_are_found_by_their_directory(tmp_path: Path) -> None:
    settings = ("train.steps=2", "train.evaluate_every=2")
    run_training(Request("digits", "linear", "tiny", 0, settings), tmp_path / "a", resume=False)
    run_training(Request("copy", "linear", "tiny", 0, settings), tmp_path / "b", resume=False)
    ((name, model, run),) = trained(tmp_path)
    assert (name, model.length) == ("linear", 16)
    assert run is not None
    row, *_ = measure(subjects([(name, model, run)], [4], [1]), 1, lambda _: None)
    run.append_metrics(row)
    assert json.loads((tmp_path / "a" / "metrics.jsonl").read_text().splitlines()[-1])["kind"] == "throughput"
    assert run.finished()


def test_translators_are_timed_on_the_same_work() -> None:
    models = translation.untrained("multi30k", "tiny")
    translation.check(models)
    rows = translation.measure(models, lengths=[4], rounds=1, refinements=1)
    assert [(row["model"], row["batch"], row["length"]) for row in rows] == [
        *((model, batch, 16) for batch in (1, 64) for model in TRANSLATION_MODELS),
        *((model, 8, 4) for model in TRANSLATION_MODELS[1:]),
    ]
    assert all(row["tokens_per_second"] > 0 for row in rows)


def test_a_profile_is_read_by_parts_and_only_inside_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "PARTS", {"work": "red", "rest": "green|blue"})
    report = """
# Event count (approx.): 2000000000
    40.00%  _native.so            [.] void (anonymous namespace)::red<float, true, false>
     5.00%  _native.so            [.] (anonymous namespace)::Green<float>::green
     2.50%  _native.so            [.] (anonymous namespace)::blue
     1.00%  _native.so            [.] memcpy@plt
    30.00%  libtorch_cpu.so       [.] red_elsewhere
"""
    assert profile.parts(report) == pytest.approx({"work": 8e8, "rest": 1.5e8, "other": 2e7})
    with pytest.raises(SystemExit, match="no samples"):
        profile.parts("")


def test_versions_times_a_checkout_in_a_process_of_its_own() -> None:
    names = [name for name, _ in versions.attention()]
    assert len(names) == len(set(names))
    worker = versions.Worker(Path(__file__).parents[1])
    try:
        assert worker.time(len(names) - 1) > 0
    finally:
        worker.close()


def test_a_block_is_timed_by_parts_in_both_ways() -> None:
    size = blocks.Size(1, 8, 16, 2, 16)
    row = blocks.measure("momentum-delta", size, rounds=1, recurrence=blocks.stand_in)
    around = ("block", "convolution", "gates", "unit rows", "norm and gate")
    names = {*around, "projections", "feed-forward", "norms and residuals", "recurrence"}
    assert set(row["milliseconds"]) == names | {f"{name}, PyTorch" for name in around}
    for times in row["milliseconds"].values():
        assert 0 < times["forward"] < float("inf")
        assert 0 < times["forward+backward"] < float("inf")


def test_decoding_is_measured_at_each_context_and_only_caches_grow() -> None:
    said: list[str] = []
    rows = decoding.measure(decoding.MODELS, [16, 64], 1, said.append)
    assert [(row["model"], row["context"]) for row in rows] == [(m, n) for n in (16, 64) for m in decoding.MODELS]
    assert all(row["tokens_per_second"] > 0 for row in rows)
    size = {(row["model"], row["context"]): row["state_bytes"] for row in rows}
    depth, width = decoding.SIZES["depth"], decoding.SIZES["width"]
    assert size["softmax", 64] == depth * (2 * 4 * width + 1) * 64
    assert size["hybrid", 64] - size["hybrid", 16] == (2 * 4 * width + 1) * 48  # one of four layers
    for model in ("momentum", "gated-delta"):
        assert size[model, 16] == size[model, 64]
    assert len(said) == len(rows)


def test_contexts_become_a_table_and_a_figure() -> None:
    rows = decoding.measure(["softmax", "momentum"], [16, 1024], 1, lambda _: None)
    machine = {"cpu": "a processor", "torch": "2", "started": "today"}
    record = {"rows": rows, "machine": machine, "what": "models", "meaning": "best", "command": "python"}
    table = contexts.markdown(record)
    assert "| context | softmax: tokens/s | momentum: tokens/s | softmax: state | momentum: state |" in table
    assert "| 1K |" in table
    assert contexts.draw(record) == contexts.draw(record)


def test_scaling_measures_what_processes_send() -> None:
    one, two = scaling.rows(length=2048, rounds=1, models=["momentum-delta"])
    assert (one["processes"], one["bytes"], one["messages"]) == (1, 0, 0)
    width, heads, taps = scaling.SIZES["width"], scaling.SIZES["heads"], 4
    rows = 2 * width // heads  # of s and m in a head
    state = heads * rows * (rows + width // heads)
    border = (taps - 1) * (taps - 1 + 3 * width)
    assert two["bytes"] == two["bytes_when_short"] == 2 * 4 * (state + border)  # there and back, four bytes each
    assert two["messages"] == 4


def test_names_of_contestants_are_whole_in_eighty_columns() -> None:
    name = "linear_attention_transformer"
    for first in (name, name[:24]):
        record = {
            "contestants": [
                {"name": first, "computes": "linear", "status": "agrees", "error": 1e-7, "reason": "x " * 60}
            ]
        }
        console = Console(width=80, file=io.StringIO())
        with console.capture() as capture:
            console.print(terminal(contestants_table(record)))
        assert "…" not in capture.get()
        assert first[:18] in capture.get()

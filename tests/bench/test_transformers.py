"""`momentum bench --transformers`: what is timed is what Transformers computes, and the bars are read off rightly."""

import json
from pathlib import Path
from typing import Any

import pytest

from momentum_transformer.backend.choose import backends
from momentum_transformer.bench import transformers_tables as tables
from momentum_transformer.bench.transformers_models import SUBJECTS

from .test_command import run


def record(**seconds: float) -> dict[str, Any]:
    """Every cell takes as long, but what is given: `ours` a quarter of a second, `theirs` one."""
    both = {"theirs": 1.0, "ours": 0.25} | seconds
    rows = [
        {"kind": one.kind, "dtype": dtype, "of": of, "work": work, "n": 2048, "products": 0.2, **both}
        for one in SUBJECTS
        for dtype in ("float32", "bfloat16")
        for of, works in (("layer", ("prefill", "training")), ("model", ("prefill", "training", "decoding")))
        for work in works
    ]
    memory = [{"kind": one.kind, "n": 2048, "dtype": "float32", "theirs": 3e9, "ours": 1e9} for one in SUBJECTS]
    machine = {"commit": "a" * 40, "dirty": False, "versions": {"torch": "2"}, "cpu": "one", "started": "today"}
    about = {"width": 1024, "layers": 4, "vocabulary": 9, "transformers": "5", "command": "momentum bench"}
    return {"rows": rows, "memory": memory, "subjects": {one.kind: "a model" for one in SUBJECTS}, **machine, **about}


def test_bars_are_met_by_those_who_meet_them() -> None:
    met = {bar.what: bar.met for bar in tables.bars(record())}
    assert len(met) == 6 * 2 + 3 * 2 + 3
    assert not met["KDA layer, prefill, 2,048 tokens, float32"]  # four times is not eight
    assert met["Mamba-2 layer, training, 2,048 tokens, bfloat16"]
    assert met["gated delta layer, peak memory of a training step, 2,048 tokens"]
    assert met["gated delta model, decoding after 2,048 tokens, float32"]
    assert {bar.most for bar in tables.bars(record())} == {"5.00 ×", ""}
    even = {bar.what: bar.met for bar in tables.bars(record(ours=1.0))}
    assert even["gated delta model, decoding after 2,048 tokens, float32"]
    assert not even["Mamba-2 model, decoding after 2,048 tokens, float32"]


def test_a_call_that_was_not_made_is_said_and_judged_by_nobody() -> None:
    row: dict[str, Any] = {
        "kind": "KDA",
        "dtype": "float32",
        "of": "layer",
        "work": "training",
        "n": 2048,
        "ours": 0.5,
    }
    row["skipped"] = {"theirs": 81.0}
    assert tables.line(row) == (
        "KDA layer, training, 2,048 tokens, float32: Transformers not run: ≈ 81 s, ours 500 ms"
    )
    few = record()
    few["rows"] = [
        row if all(row[x] == one[x] for x in ("kind", "dtype", "of", "work")) else one for one in few["rows"]
    ]
    assert len(tables.bars(few)) == len(tables.bars(record())) - 1
    assert "not run: ≈ 81 s" in tables.markdown(few)
    assert "KDA 4.0 and – times" in tables.headline(few)


@pytest.mark.slow
@pytest.mark.skipif(not backends()[0].available, reason=f"no native kernels: {backends()[0].reason}")
@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*:FutureWarning")
def test_a_quick_run_times_every_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers", reason="the extra hf is not installed", minversion="5")
    out = tmp_path / "transformers.json"
    assert run("--transformers", "--quick", "--out", str(out)) == 0
    shown = capsys.readouterr().out
    assert all(one.kind in shown for one in SUBJECTS)
    rows = json.loads(out.read_text())["rows"]
    assert len(rows) == 3 * (2 * 2 + 2 * 3)
    assert all(row["theirs"] > 0 and row["ours"] > 0 for row in rows)


def test_a_folder_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--transformers", "--out", ".") == 2
    assert "momentum: . is a folder; name a file" in capsys.readouterr().err

"""Tables, targets, picture and JSON of a record with known numbers."""

import copy
import re
from pathlib import Path

import pytest

from momentum_transformer.bench import attention_tables as tables
from momentum_transformer.bench.measured_shapes import BenchError
from momentum_transformer.bench.plot import draw
from momentum_transformer.bench.suite import read, write
from momentum_transformer.bench.targets import all_targets, crossover, long_rows
from tests.bench.records import SHAPES, assert_fits_the_terminal, record

RECORD = record()


def targets() -> dict[str, tuple[list[str], str]]:
    return {t.name: ([cell.text for cell in t.cells.values()], t.met()) for t in all_targets(RECORD)}


def test_targets_are_computed_from_the_record() -> None:
    assert targets() == {
        "linear: fast-transformers' time ÷ ours, forward": (["7.00", "7.00"], "yes"),
        "linear: fast-transformers' time ÷ ours, forward+backward": (["7.00", "7.00"], "no"),
        "momentum: SDPA's time ÷ ours, forward": (["10.00", "10.00"], "1 of 2"),
        "momentum: SDPA's time ÷ ours, forward+backward": (["10.00", "10.00"], "1 of 2"),
        "momentum: share of the GEMM rate, forward": (["50 %", "50 %"], "yes"),
        "momentum's time ÷ linear's, forward": (["1.10", "1.10"], "yes"),
        "momentum's time ÷ linear's, forward+backward": (["1.10", "1.10"], "yes"),
        "momentum: peak memory ÷ inputs, outputs and gradients": (["1.10", "1.30"], "1 of 2"),
    }


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    bare = copy.deepcopy(RECORD)
    for block in bare["shapes"]:
        block["rows"] = [row for row in block["rows"] if row["name"] != "fast-transformers"]
    first = all_targets(bare)[0]
    assert (first.cells, first.met()) == ({}, "not measured")


def test_very_long_sequences_are_held_against_half_the_length_and_the_limit() -> None:
    half, whole, wide = long_rows(RECORD)
    assert half[:5] == ("bfloat16", "524,288", "2.00", "", "")
    assert whole == ("bfloat16", "1,048,576", "4.20", "2.10", "yes", "8.59", "9.45", "yes")
    # 17 GB of tensors cannot fit in 12 GB, so that nothing needs to be run to know it
    assert wide == ("float32", "1,048,576", "skipped: ≈ 21 GB", "", "", "17.18", "", "no")


def test_crossover_lies_where_the_curves_meet() -> None:
    assert crossover(RECORD, "forward", "native momentum") == pytest.approx(128)
    assert crossover(RECORD, "forward", "chunked momentum") is None


def test_crossover_of_who_is_always_or_never_faster() -> None:
    for factor, expected in ((1e-6, 64.0), (1e6, None)):
        scaled = copy.deepcopy(RECORD)
        for block in scaled["lengths"]:
            block["rows"][0]["best"] *= factor
        assert crossover(scaled, "forward", "native momentum") == expected
        assert ("at no length" in tables.crossovers(scaled)) == (expected is None)
        assert ("from n = 64 or less" in tables.crossovers(scaled)) == (expected == 64)


def test_shape_table_compares_with_the_same_function_of_ours() -> None:
    rows = {row[0]: row[1:] for row in tables.shape_table(RECORD, SHAPES[0]).rows}
    assert rows["native linear"][:2] == ("1.00 (1.50)", "1.00")
    assert rows["fast-transformers"][1] == "7.00"
    assert rows["SDPA"][1:3] == ("10.00", "")
    assert rows["native momentum"][2] == "50 %"


def test_skipped_calls_say_why() -> None:
    assert "(≈ 45 s)" in tables.lengths_table(RECORD).rows[-1]
    skipped = copy.deepcopy(RECORD)
    for block in skipped["shapes"]:
        block["rows"][2] = {"name": "SDPA", "computes": "softmax", "skipped": "≈ 45 s"}
    assert "skip: ≈ 45 s" in tables.shape_table(skipped, SHAPES[0]).rows[2]


def test_terminal_tables_fit_eighty_columns_and_show_every_cell() -> None:
    everything = [
        tables.backends_table(RECORD),
        tables.contestants_table(RECORD),
        *(tables.shape_table(RECORD, shape) for shape in SHAPES),
        tables.lengths_table(RECORD),
        tables.long_table(RECORD),
        tables.memory_table(RECORD),
        tables.targets_table(RECORD),
    ]
    for table in everything:
        assert_fits_the_terminal(table)


def test_docs_take_everything_from_the_record() -> None:
    text = tables.markdown(RECORD)
    for part in ("2 threads on 2 cores of a processor", "pytorch-fast-transformers 0.4.0", "Not installed: fla-core"):
        assert part in text
    assert "| ≥ 45 % | 50 % | 50 % | yes |" in text
    assert "(results/bench.svg)" in text
    assert re.search(r"commit 0123456789ab\.$", text, re.MULTILINE)


def test_picture_has_the_same_bytes_for_the_same_record_and_every_part() -> None:
    drawn = draw(RECORD)
    assert drawn == draw(record())
    for label in ("native momentum", "SDPA", "GEMM roofline", "from n ≈ 128", "q, k, v, y and their gradients"):
        assert label in drawn, label
    assert "peak memory" not in draw({**RECORD, "memory": []})


def test_records_survive_the_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "bench.json"
    write(RECORD, path)
    assert read(path) == RECORD
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 2, "shapes": []}', '{"format": 1}'])
def test_other_files_are_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bench.json"
    path.write_text(text)
    with pytest.raises(BenchError, match=r"bench\.json") as refused:
        read(path)
    assert "\n" not in str(refused.value)

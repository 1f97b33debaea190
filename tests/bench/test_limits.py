"""The bounds of the kernels, from a record with known numbers and from one real measurement."""

import pytest
import torch

from momentum_transformer.backend.cpu.native_backend import status
from momentum_transformer.bench.limits import bounds_table, bytes_moved, measure_limits, operations, threads_table
from momentum_transformer.bench.measured_shapes import Shape
from momentum_transformer.bench.timing import Budget
from tests.bench.records import record


def test_operations_are_those_of_the_recurrence() -> None:
    shape, long = Shape(2, 3, 64, 32), Shape(1, 1, 2048, 32)
    tokens = 2 * 3 * 64
    assert operations(shape, "linear", "forward") == tokens * 2 * 2 * 32 * 32  # added to s, read from it
    assert operations(shape, "momentum", "forward") == tokens * 2 * 3 * 32 * 32  # to m, from m to s, from s
    for computes in ("linear", "momentum"):
        forward = operations(shape, computes, "forward")
        assert operations(shape, computes, "forward+backward") == 4 * forward
    assert operations(long, "linear", "forward") == 2048 * 2 * 3 * 32 * 32
    assert operations(long, "momentum", "forward+backward") == 2048 * 2 * 14 * 32 * 32


def test_bytes_are_those_of_the_tensors() -> None:
    shape = Shape(2, 3, 5, 7)
    assert bytes_moved(shape, "forward") == 4 * 4 * 2 * 3 * 5 * 7
    assert bytes_moved(shape, "forward+backward") == 12 * 4 * 2 * 3 * 5 * 7


def test_tables_hold_the_bounds_against_what_was_measured() -> None:
    bounds = bounds_table(record())
    assert bounds.columns[2:7] == ("operations", "bytes", "both", "measured", "targets ask")
    assert bounds.columns[7:] == ("operations ÷ linear's", "linear + its operations ÷ linear", "÷ linear")
    # 65,536 tokens: 4,096 operations each at 100 GFLOP/s, 4 tensors of 8.4 MB at 10 GB/s, a sixth of 7 ms
    assert bounds.rows[0] == (
        "(64, 8, 128, 32)",
        "linear, forward",
        "2.68",
        "3.36",
        "6.04",
        "1.25",
        "1.17",
        *3 * ("1.00",),
    )
    # 45 % of the GEMM rate would be 11.9 ms, 1.15 times linear is less; 2,048 operations more would take 1.34 ms
    assert bounds.rows[1][-4:] == ("1.44", "1.50", "2.07", "1.00")
    assert threads_table(record()).rows[0] == ("(64, 8, 128, 32)", "50", "8.0", "2.00", "1.25", *4 * ("1.60",))


@pytest.mark.skipif(status() is not None, reason=f"native kernels: {status()}")
def test_a_measurement_leaves_the_number_of_threads_as_it_was() -> None:
    before = torch.get_num_threads()
    found = measure_limits(Shape(1, 2, 32, 16), Budget(seconds=0.0, least=1))
    assert torch.get_num_threads() == before
    assert [one["threads"] for one in found["by_threads"]] == sorted({1, before})
    for one in found["by_threads"]:
        assert min(one["gemm_flops"], one["triad_bytes"], *one["seconds"].values()) > 0

"""Rounds, budgets and estimates; nothing here depends on how long anything takes."""

import threading
import time
from functools import partial
from typing import Any

import pytest
import torch

from momentum_transformer import linear_attention, momentum_attention
from momentum_transformer.bench.contestants import Contestant
from momentum_transformer.bench.measured_shapes import BenchError, Shape, parse_shape
from momentum_transformer.bench.timing import (
    Budget,
    growth,
    interleave,
    once,
    paired_ratio,
    processor_seconds,
    time_shape,
)

LINEAR = Contestant("chunked linear", "linear", lambda: linear_attention)
MOMENTUM = Contestant("chunked momentum", "momentum", lambda: lambda q, k, v: momentum_attention(q, k, v, beta=0.6))
FEW = Budget(seconds=0.0, least=3)


def test_slow_contestants_take_part_in_fewer_rounds_evenly_spread() -> None:
    called: list[str] = []
    calls = {name: partial(called.append, name) for name in ("fast", "slow")}
    seconds = interleave(calls, {"fast": 6, "slow": 2})
    assert list(seconds["fast"]) == [0, 1, 2, 3, 4, 5]
    assert list(seconds["slow"]) == [2, 5]
    assert called.count("fast") == 6
    assert called.count("slow") == 2


def test_the_order_rotates() -> None:
    called: list[str] = []
    interleave({name: partial(called.append, name) for name in "abc"}, dict.fromkeys("abc", 3))
    assert called == [*"abc", *"bca", *"cab"]


def test_a_ratio_pairs_what_ran_in_the_same_round() -> None:
    assert paired_ratio({0: 2.0, 1: 30.0, 2: 4.0}, {0: 1.0, 1: 10.0, 2: 1.0, 3: 100.0}) == 3.0


@pytest.mark.parametrize(("seconds", "rounds"), [(1e-9, 200), (0.1, 40), (3.0, 2), (100.0, 2)])
def test_budget_decides_how_many_rounds(seconds: float, rounds: int) -> None:
    assert Budget(seconds=4.0, least=2, most=200).rounds(seconds) == rounds


@pytest.mark.parametrize(("twice", "power"), [(0.5, 1.0), (2.0, 1.0), (4.0, 2.0), (9.0, 2.0)])
def test_growth_is_between_linear_and_quadratic(twice: float, power: float) -> None:
    assert growth(1.0, twice) == power


@pytest.mark.parametrize("direction", ["forward", "forward+backward"])
def test_everyone_is_timed_in_the_same_run_as_the_matrix_product(direction: str) -> None:
    block = time_shape(Shape(1, 2, 40, 4), direction, {one: one.load() for one in (LINEAR, MOMENTUM)}, FEW)
    assert [row["name"] for row in block["rows"]] == ["chunked linear", "chunked momentum"]
    assert all(0 < row["best"] <= row["median"] and row["rounds"] == 3 for row in block["rows"])
    assert block["gemm_flops"] > 0
    assert block["momentum_to_linear"]["chunked"] > 0


def test_what_needs_too_much_memory_is_not_called() -> None:
    def never(*_: Any) -> Any:
        raise SystemExit("called")

    hungry = Contestant("hungry", "linear", lambda: never, states=10**15)
    block = time_shape(Shape(1, 1, 64, 8), "forward", {hungry: never}, FEW)
    assert block["rows"] == [{"name": "hungry", "computes": "linear", "skipped": block["rows"][0]["skipped"]}]
    assert block["rows"][0]["skipped"].endswith(" GB")


def test_what_would_take_too_long_is_tried_at_a_fraction_of_the_length_only() -> None:
    lengths = []

    def noted(q: Any, k: Any, v: Any) -> Any:
        lengths.append(q.shape[2])
        return v

    slow = Contestant("slow", "linear", lambda: noted)
    block = time_shape(Shape(1, 1, 4096, 1), "forward", {slow: noted}, Budget(call=0.0))
    assert set(lengths) == {512}
    assert "best" not in block["rows"][0]
    assert block["rows"][0]["skipped"].endswith(" s")


def test_a_contestant_that_fails_at_a_shape_does_not_stop_the_others() -> None:
    def failing(*_: Any) -> Any:
        raise RuntimeError("can't allocate memory\nand more")

    broken = Contestant("broken", "linear", lambda: failing)
    block = time_shape(Shape(1, 1, 8, 4), "forward", {broken: failing, LINEAR: LINEAR.load()}, FEW)
    assert block["rows"][0]["skipped"] == "failed: can't allocate memory"
    assert "best" in block["rows"][1]


def test_useful_operations_are_those_of_the_recurrence() -> None:
    assert Shape(2, 3, 5, 4).useful_flops("momentum") == 8 * 16 * 2 * 3 * 5
    assert Shape(2, 3, 5, 4).useful_flops("linear") == 4 * 16 * 2 * 3 * 5
    assert Shape(2, 3, 5, 4).bytes() == 2 * 3 * 5 * 4 * 4


@pytest.mark.parametrize("text", ["64,8,128,32", "64x8x128x32", "64, 8, 128, 32"])
def test_a_shape_is_four_numbers(text: str) -> None:
    assert parse_shape(text) == (64, 8, 128, 32)


@pytest.mark.parametrize("text", ["", "1,2,3", "1,2,3,0", "1,2,3,-4", "1,2,3,x", "1,2,3,4,5", "1.5,2,3,4", "²,2,3,4"])
def test_anything_else_is_an_error_that_says_so(text: str) -> None:
    with pytest.raises(BenchError, match="four positive whole numbers b,h,n,d"):
        parse_shape(text)


def test_the_clock_may_be_another() -> None:
    ticks = iter(range(100))
    assert once(lambda: None, lambda: float(next(ticks))) == 1.0
    seconds = interleave({"a": lambda: None}, {"a": 3}, lambda: float(next(ticks)))
    assert seconds == {"a": {0: 1.0, 1: 1.0, 2: 1.0}}


def test_the_clock_of_one_thread_counts_work_that_a_call_gives_to_another_thread() -> None:
    a = torch.randn(256, 256)

    def elsewhere() -> None:
        worker = threading.Thread(target=work)
        worker.start()
        worker.join()

    counted: list[float] = []

    def work() -> None:
        started = time.thread_time()
        while time.thread_time() - started < 0.02:
            a @ a
        counted.append(time.thread_time() - started)

    assert once(elsewhere, processor_seconds) >= counted[0]


def test_short_calls_are_timed_in_rows() -> None:
    ticks = iter(range(100))
    called: list[str] = []
    calls = {name: partial(called.append, name) for name in "ab"}
    seconds = interleave(calls, {"a": 2, "b": 1}, lambda: float(next(ticks)), {"a": 4, "b": 1})
    assert seconds == {"a": {0: 0.25, 1: 0.25}, "b": {1: 1.0}}
    assert called.count("a") == 8
    assert called.count("b") == 1

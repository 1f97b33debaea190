"""The benchmark of the family: who is let through, and the tables of a record with known numbers."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from momentum_transformer import recurrent_attention
from momentum_transformer.bench import attention_tables as tables
from momentum_transformer.bench import family_tables
from momentum_transformer.bench.contestants import FAMILY, Contestant, adapted, find, inputs
from momentum_transformer.bench.family_suite import OTHERS, QUICK_FAMILY, run_family, served_by
from momentum_transformer.bench.family_targets import columns, family_targets, limits
from momentum_transformer.bench.gate import judge
from momentum_transformer.bench.limits import bytes_moved, operations
from momentum_transformer.bench.measured_shapes import BenchError, Shape
from momentum_transformer.bench.members import EXTRAS, attend_member, names
from momentum_transformer.bench.memory import measure
from momentum_transformer.bench.suite import read, write
from tests.bench.records import assert_fits_the_terminal, family_record

Tensor = torch.Tensor
RECORD = family_record()
LONG, SHORT = Shape(1, 16, 1024, 128), Shape(10, 8, 784, 32)


def plain(q: Tensor, k: Tensor, v: Tensor, alpha: Tensor, eta: Tensor) -> Tensor:
    return recurrent_attention(q, k, v, alpha=alpha, eta=eta, delta=alpha)


def without_decay_of_the_prediction(q: Tensor, k: Tensor, v: Tensor, alpha: Tensor, eta: Tensor) -> Tensor:
    return recurrent_attention(q, k, v, alpha=alpha, eta=eta, delta=1.0)


def scaled(*tensors: Tensor) -> Tensor:
    return plain(*tensors) * tensors[0].shape[-1] ** -0.5


def without_gradient_of_alpha(q: Tensor, k: Tensor, v: Tensor, alpha: Tensor, eta: Tensor) -> Tensor:
    return plain(q, k, v, alpha.detach(), eta) + 0 * alpha.sum()


def wrong_where_nobody_asks_for_gradients(*tensors: Tensor) -> Tensor:
    return plain(*tensors) * (1 if torch.is_grad_enabled() else 1.01)


@pytest.mark.parametrize(
    ("attend", "complaint"),
    [
        (without_decay_of_the_prediction, "is off by"),
        (scaled, "is off by 6.2e-01"),
        (without_gradient_of_alpha, "the gradient of alpha is off by 1.0e+00"),
        (wrong_where_nobody_asks_for_gradients, "y is off by 1.0e-02 of"),
    ],
)
def test_a_wrong_member_is_caught(attend: Callable[..., Tensor], complaint: str) -> None:
    verdict = judge(Contestant("probe", "gated delta", lambda: attend), [8])
    assert verdict.status == "disagrees"
    assert complaint in verdict.reason


def test_a_wrong_state_after_one_token_is_caught() -> None:
    def forgetful(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        y, state = attend_member(*tensors, computes="one token", backend="recurrent")
        return y, state * 0.5

    verdict = judge(Contestant("probe", "one token", lambda: forgetful), [8])
    assert not verdict.passed
    assert "the state is off by 5.0e-01" in verdict.reason


@pytest.mark.parametrize("one", FAMILY, ids=lambda one: one.name)
def test_members_and_peers_that_are_installed_pass(one: Contestant) -> None:
    verdict = judge(one, [16])
    if verdict.status == "unavailable":
        pytest.skip(verdict.reason)
    assert verdict.passed, verdict.reason


def test_a_peer_gets_leaves_in_its_own_form_before_it_is_timed() -> None:
    *leaves, grad = inputs(Shape(1, 2, 5, 4), computes="gated delta")
    *own, same = adapted(find("Transformers gated delta"), (*leaves, grad))
    assert same is grad
    assert all(x.is_leaf and x.requires_grad for x in own)
    assert torch.equal(own[0], 2 * leaves[0].transpose(1, 2))
    assert torch.equal(own[3], leaves[3].log().transpose(1, 2))
    assert adapted(find("auto gated delta"), (*leaves, grad)) == (*leaves, grad)


@pytest.mark.parametrize("computes", EXTRAS)
def test_inputs_are_what_the_names_say(computes: str) -> None:
    *tensors, grad = inputs(Shape(2, 3, 5, 4), computes=computes)
    assert len(tensors) == len(names(computes))
    assert grad.shape == tensors[2].shape
    assert torch.allclose(tensors[1].norm(dim=-1), torch.ones(2, 3, 5))
    decay = tensors[3]
    assert decay.shape == {"KDA": (2, 3, 5, 4), "gated delta a head": (3,)}.get(computes, (2, 3, 5))
    assert bool(((decay >= 0.9) & (decay < 1)).all())


def test_who_serves_ours_is_said() -> None:
    found = served_by(find("auto gated delta"))
    assert found in ("native", "chunked", "native, with gradients by chunked")
    assert served_by(find("auto one token")) in ("native", "chunked")


def test_operations_are_those_of_the_kernels() -> None:
    shape = Shape(2, 3, 5, 4)
    element = 2 * 3 * 5 * 2 * 4 * 4
    in_a_chunk = 7.25 * 16 * 2 * 3 * 5 * 2 * 4  # a row and sixteen others; four are three quarters each
    again = 0.5  # of a segment of two chunks, the state before the first is saved
    assert operations(shape, "gated delta", "forward") == 3 * element  # added, read by q, read by the next key
    assert operations(shape, "momentum delta", "forward") == 4 * element
    assert operations(shape, "KDA", "forward") == 4 * element
    assert operations(shape, "gated delta", "forward+backward") == (3 + 6 + again) * element + in_a_chunk
    assert operations(shape, "momentum delta", "forward+backward") == (4 + 12 + 2 * again) * element + in_a_chunk
    assert operations(shape, "KDA", "forward+backward") == (4 + 10) * element


def test_bytes_are_those_of_tensors_coefficients_and_of_one_token_the_state() -> None:
    shape, tensor, numbers = Shape(2, 3, 5, 4), 2 * 3 * 5 * 4 * 4, 2 * 3 * 5 * 4
    assert bytes_moved(shape, "forward", "gated delta") == 4 * tensor + 2 * numbers
    assert bytes_moved(shape, "forward+backward", "gated delta") == 12 * tensor + 6 * numbers
    assert bytes_moved(shape, "forward", "KDA") == 5 * tensor + numbers
    token = shape._replace(n=1)
    state = 2 * 3 * 4 * 4 * 4
    assert bytes_moved(token, "forward", "one token") == 4 * token.bytes() + 2 * 2 * 3 * 4 + 2 * state


def test_targets_are_computed_from_the_record() -> None:
    found = {t.name: (t.bound, [cell.text for cell in t.cells.values()], t.met()) for t in family_targets(RECORD)}
    assert found == {
        "gated delta: Transformers' time ÷ ours, forward": ("≥ 5, 7, 11, 20", ["8.00", "8.00"], "1 of 2"),
        "gated delta: Transformers' time ÷ ours, forward+backward": ("≥ 5, 6, 9, 12", ["8.00", "8.00"], "1 of 2"),
        "KDA: Transformers' time ÷ ours, forward": ("≥ 50", ["60.00"], "yes"),
        "one token: Transformers' time ÷ ours, forward": ("≥ 5", ["4.00"], "no"),
        "gated delta's time ÷ momentum's, forward": ("≤ 1.2", ["1.00", "1.00"], "yes"),
        "momentum delta's time ÷ gated delta's, forward": ("≤ 1.6", ["2.00", "2.00"], "no"),
        "momentum delta's time ÷ gated delta's, forward+backward": ("≤ 1.6", ["2.00", "2.00"], "no"),
        "coefficients a token ÷ a head, forward": ("≤ 1.15", ["1.00", "1.00"], "yes"),
        "coefficients a token ÷ a head, forward+backward": ("≤ 1.15", ["1.00", "1.00"], "yes"),
        "gated delta: peak memory ÷ inputs, outputs and gradients": ("≤ 1.3", ["1.25"], "yes"),
        "momentum delta: peak memory ÷ inputs, outputs and gradients": ("≤ 1.3", ["1.40"], "no"),
    }


def test_one_token_stands_below_the_shape_with_its_heads_and_width() -> None:
    token = next(target for target in family_targets(RECORD) if target.name.startswith("one token"))
    assert columns(RECORD) == [LONG, SHORT]
    assert list(token.cells) == [LONG]


def test_who_did_not_take_part_is_neither_met_nor_missed() -> None:
    bare = copy.deepcopy(RECORD)
    for block in bare["family"]:
        block["rows"] = [row for row in block["rows"] if not row["name"].startswith("Transformers")]
    assert [target.met() for target in family_targets(bare)[:4]] == ["not measured"] * 4


def test_limits_hold_each_call_against_the_machine_and_the_targets() -> None:
    found = {(one.computes, one.direction, one.shape): one for one in limits(RECORD)}
    one = found["gated delta", "forward", LONG]
    assert one.operations == pytest.approx(16 * 1024 * 2 * 3 * 128**2 / 1e11)
    assert one.bytes == pytest.approx((4 * LONG.bytes() + 2 * 16 * 1024 * 4) / 1e10)
    assert (one.binding, one.measured) == ("operations", 1e-3)
    assert one.asked == pytest.approx(1.15e-3)  # less than 8 ms / 5 and 1.2 times momentum
    assert found["linear", "forward", LONG].asked is None
    assert found["one token", "forward", LONG._replace(n=1)].binding == "bytes"
    two = {(one.computes, one.direction, one.shape): one for one in limits(RECORD, 2)}
    assert two["gated delta", "forward", LONG].operations == pytest.approx(one.operations / 2)


def test_times_stand_beside_each_other_by_threads() -> None:
    rows = {row[:3]: row[3:] for row in family_tables.times_table(RECORD).rows}
    assert rows[str(LONG), "forward", "auto gated delta"] == ("1.00 (1.50)", "", "0.500 (0.750)", "")
    assert rows[str(LONG), "forward", "Transformers KDA"] == ("60.0 (90.0)", "60.00", "30.0 (45.0)", "60.00")


def test_terminal_tables_fit_eighty_columns_and_show_every_cell() -> None:
    everything = [
        family_tables.gate_table(RECORD),
        *map(family_tables.block_table, family_tables.together(RECORD)),
        family_tables.targets_table(RECORD),
        family_tables.bounds_table(RECORD),
        tables.memory_table(RECORD),
    ]
    for table in everything:
        assert_fits_the_terminal(table)


def test_docs_take_everything_from_the_record() -> None:
    text = family_tables.markdown(RECORD)
    for part in (
        "1 thread and 2 threads on 2 cores of a processor",
        "`momentum bench --family`",
        "Targets of the family, 2 threads",
    ):
        assert part in text
    assert "With 2 threads GEMM ran at 200 to 200 GFLOP/s, the triad at 20 to 20 GB/s." in text
    assert "| ≥ 5, 7, 11, 20 | 8.00 | 8.00 | 1 of 2 |" in text


def test_records_of_the_family_and_others_are_not_confused(tmp_path: Path) -> None:
    path = tmp_path / "family.json"
    write(RECORD, path)
    assert read(path, "family") == RECORD
    with pytest.raises(BenchError, match="not a record"):
        read(path)


def test_a_run_times_each_group_with_one_thread_and_with_all() -> None:
    parts = []
    before = torch.get_num_threads()
    try:
        plan = replace(QUICK_FAMILY.at((Shape(1, 1, 20, 4),)), peers=False)
        record = run_family(plan, 2, lambda part, _: parts.append(part))
    finally:
        torch.set_num_threads(before)
    groups = ("members", "members", *OTHERS)
    assert [(x["group"], x["threads"]) for x in record["family"]] == [(group, n) for group in groups for n in (1, 2)]
    assert parts == ["contestants", *["family"] * len(groups)]
    assert {row["name"] for row in record["family"][-1]["rows"]} == {"auto one token"}
    assert all("best" in row for block in record["family"] for row in block["rows"])
    assert {row["name"] for row in record["memory"]} == {
        "auto gated delta",
        "auto gated delta a head",
        "auto momentum delta",
    }


def test_memory_of_a_member_counts_its_coefficients() -> None:
    shape = Shape(1, 2, 64, 4)
    assert measure("auto gated delta", shape)["tensors"] == 8 * shape.bytes() + 2 * 2 * 2 * 64 * 4

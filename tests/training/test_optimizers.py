"""Schedules are those that they are named after."""

import warnings

import pytest
import torch

from momentum_transformer import Encoder, GatedDeltaAttention
from momentum_transformer.layers.presets import ModernBlock
from momentum_transformer.training.config import TrainConfig
from momentum_transformer.training.optimizers import betas, learning_rate, make_optimizer


@pytest.mark.parametrize(("steps", "warmup"), [(500, 0.2), (200, 0.4), (300, 0.0267), (400, 0.005), (10, 0.5)])
def test_one_cycle_is_that_of_pytorch(steps: int, warmup: float) -> None:
    config = TrainConfig(
        steps=steps, schedule="one-cycle", warmup=warmup, learning_rate=1e-4, optimizer="adamw", cycle_beta1=True
    )
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=1e-4, pct_start=warmup, anneal_strategy="linear", total_steps=steps
    )
    for step in range(steps):
        assert learning_rate(step, config) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-9)
        assert betas(step, config) == pytest.approx(optimizer.param_groups[0]["betas"])
        optimizer.step()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if step < steps - 1:
                schedule.step()


def test_beta1_stays_where_it_is_unless_asked_to_cycle() -> None:
    config = TrainConfig(schedule="one-cycle", betas=(0.9, 0.98))
    assert {betas(step, config) for step in range(1000)} == {(0.9, 0.98)}
    assert betas(5, TrainConfig(cycle_beta1=True)) == (0.9, 0.999)  # a constant rate has no cycle


def test_without_warmup_the_cycle_starts_at_its_peak() -> None:
    config = TrainConfig(steps=10, schedule="one-cycle", warmup=0.0, learning_rate=1.0)
    rates = [learning_rate(step, config) for step in range(10)]
    assert rates[0] == 1.0
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] == pytest.approx(4e-6)


@pytest.mark.parametrize("name", ["radam", "adam", "adamw"])
def test_every_optimizer_gets_its_epsilon(name: str) -> None:
    config = TrainConfig(optimizer=name, epsilon=1e-6)
    optimizer = make_optimizer([torch.nn.Parameter(torch.zeros(1))], config)
    assert optimizer.param_groups[0]["eps"] == 1e-6


@pytest.mark.parametrize("beta2", [0.999, 0.7])  # 0.7: no variance is ever known well
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_radam_takes_the_steps_of_pytorch_and_keeps_its_state(beta2: float, decay: float) -> None:
    torch.manual_seed(0)
    start = [torch.randn(shape, dtype=torch.float64) for shape in ((3, 5), (7,))]
    config = TrainConfig(optimizer="radam", betas=(0.8, beta2), weight_decay=decay, epsilon=1e-3)
    mine, theirs = ([torch.nn.Parameter(x.clone()) for x in start] for _ in range(2))
    ours = make_optimizer(mine, config)
    reference = torch.optim.RAdam(
        theirs, betas=config.betas, eps=1e-3, weight_decay=decay, decoupled_weight_decay=True
    )
    for step in range(12):
        for parameters in (mine, theirs):
            for i, parameter in enumerate(parameters):
                generator = torch.Generator().manual_seed(10 * step + i)
                gradient = torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
                parameter.grad = None if step == 8 and i else gradient  # from there on, their counts differ
        for optimizer in (ours, reference):
            optimizer.param_groups[0]["lr"] = 0.1 / (1 + step)
            optimizer.step()
        assert all(torch.allclose(x, y, rtol=1e-12, atol=1e-12) for x, y in zip(mine, theirs, strict=True))
    for x, y in zip(mine, theirs, strict=True):
        assert ours.state[x].keys() == reference.state[y].keys()
        for name, value in reference.state[y].items():
            assert torch.allclose(ours.state[x][name], value, rtol=1e-12, atol=1e-14), name


def test_a_linear_schedule_goes_straight_from_the_first_rate_to_the_last() -> None:
    config = TrainConfig(steps=100, schedule="linear", learning_rate=3.0, final_rate=1.0)
    assert [learning_rate(step, config) for step in (0, 25, 50, 100)] == [3.0, 2.5, 2.0, 1.0]


def test_a_cosine_rises_along_a_line_and_falls_along_half_a_wave() -> None:
    config = TrainConfig(steps=100, schedule="cosine", warmup=0.2, learning_rate=3.0, final_rate=1.0)
    rates = [learning_rate(step, config) for step in range(101)]
    assert rates[:20] == pytest.approx([3 * (i + 1) / 21 for i in range(20)])
    assert [rates[20], rates[60], rates[100]] == pytest.approx([3.0, 2.0, 1.0])
    assert rates[20:] == sorted(rates[20:], reverse=True)


def test_norms_biases_and_scalars_of_gates_do_not_decay() -> None:
    torch.manual_seed(0)
    encoder = Encoder(1, 8, 2, attention=GatedDeltaAttention(), block=ModernBlock())
    config = TrainConfig(optimizer="adamw", weight_decay=0.5, decayed="matrices", learning_rate=0.1)
    optimizer = make_optimizer(encoder.parameters(), config)
    before = {name: parameter.clone() for name, parameter in encoder.named_parameters()}
    for parameter in encoder.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    decayed = {name for name, parameter in encoder.named_parameters() if not torch.equal(parameter, before[name])}
    assert decayed == {name for name, parameter in before.items() if parameter.ndim > 1}
    kept = before.keys() - decayed
    for part in ("attention_norm.weight", "feedforward_norm.weight", "query.bias", "rate", "offset"):
        assert any(name.endswith(part) for name in kept), part


def test_impossible_schedules_are_refused() -> None:
    with pytest.raises(ValueError, match=r"train.warmup is a share of the steps, in \[0, 1\), not 1000"):
        TrainConfig(schedule="one-cycle", warmup=1000)

"""A small worked example: the paper's attention in all its forms, on random tokens, with what they differ by."""

import torch
from rich.console import Console
from rich.table import Table

from . import linear_attention, momentum_attention


def main() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, 300, 16, dtype=torch.float64).unbind(0)
    beta, gamma = 0.6, 0.9  # the paper's values for MNIST
    exact = momentum_attention(q, k, v, beta=beta, gamma=gamma, backend="recurrent")

    table = Table(title=f"Momentum attention, β = {beta}, γ = {gamma}, 300 tokens, float64")
    table.add_column("form")
    table.add_column("relative distance to the paper's recurrence", justify="right")
    outputs = {
        "quadratic (the closed form)": momentum_attention(q, k, v, beta=beta, gamma=gamma, backend="quadratic"),
        "chunked (linear time, for training)": momentum_attention(q, k, v, beta=beta, gamma=gamma),
        "token by token (for sampling)": _decode(q, k, v, beta, gamma),
        "the authors' released training code": momentum_attention(
            q, k, v, beta=beta, gamma=gamma, weighting="terminal"
        ),
        "linear attention × γ/(1 - β)": linear_attention(q, k, v) * gamma / (1 - beta),
    }
    for name, y in outputs.items():
        table.add_row(name, f"{((y - exact).norm() / exact.norm()).item():.1e}")
    Console().print(table)


def _decode(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, beta: float, gamma: float) -> torch.Tensor:
    state, outputs = None, []
    for q_t, k_t, v_t in zip(q.split(1, 2), k.split(1, 2), v.split(1, 2), strict=True):
        y_t, state = momentum_attention(q_t, k_t, v_t, beta=beta, gamma=gamma, state=state, return_state=True)
        outputs.append(y_t)
    return torch.cat(outputs, 2)


if __name__ == "__main__":
    main()

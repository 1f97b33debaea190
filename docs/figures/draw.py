"""Draw the figures of docs/derivations.md and docs/experiments.md: python docs/figures/draw.py"""

from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import torch

from momentum_transformer import optimal_momentum
from momentum_transformer.data.pathfinder_generator import contact_sheet, generate
from momentum_transformer.data.png import write_grey_png
from momentum_transformer.ops.geometric import geometric_sums
from momentum_transformer.ops.heavy_ball import heavy_ball_step

HERE = Path(__file__).parent
STYLES = ["-", "--", "-.", ":", (0, (1, 1, 4, 1))]
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000"]


def save(figure: plt.Figure, name: str) -> None:
    figure.savefig(HERE / name, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def weights() -> None:
    """What key j weighs for the last query, and for one in the middle, in the paper and in the released code."""
    n, i, beta = 40, 20, 0.9
    sums = geometric_sums(torch.tensor([beta], dtype=torch.float64), n)[0]
    figure, axis = plt.subplots(figsize=(6.4, 3.2))
    keys = torch.arange(1, i + 1)
    axis.plot(keys, sums[i - keys + 1], STYLES[0], color=COLOURS[0], marker="o", ms=3, label="paper, query 20")
    axis.plot(
        keys,
        sums[n - keys + 1],
        STYLES[1],
        color=COLOURS[1],
        marker="s",
        ms=3,
        label="released code, query 20 of 40",
    )
    axis.plot(keys, torch.ones(i), STYLES[2], color=COLOURS[2], label="linear attention")
    axis.set(
        xlabel="key j",
        ylabel="weight",
        title=f"Weight of each key for query 20, β = {beta}, γ = 1",
        ylim=(0, None),
        xticks=range(0, 21, 5),
    )
    axis.legend(frameon=False)
    save(figure, "weights.svg")


def quadratic(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64, generator=generator))[0]
    A = basis @ torch.diag(torch.linspace(0.02, 1, 8, dtype=torch.float64)) @ basis.T
    return A, torch.randn(8, dtype=torch.float64, generator=generator)


def theorem() -> None:
    """Distance to the minimum for several β, and the estimate of the smallest eigenvalue (Proposition 1)."""
    A, b = quadratic()
    solution = -torch.linalg.solve(A, b)
    nu, gamma = 0.02, 1.0
    best = optimal_momentum(gamma, nu)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.4))
    for beta, style, colour in zip((0.0, 0.5, best, 0.9), STYLES, COLOURS, strict=False):
        x, m = torch.zeros_like(b), torch.zeros_like(b)
        distances, estimates = [], []
        for _ in range(150):
            before = x
            x, m = heavy_ball_step(x, m, lambda x: A @ x + b, beta=beta, gamma=gamma)
            distances.append((x - solution).norm().item())
            estimates.append(((A @ (x - before)).norm() / (x - before).norm()).item())
        label = f"β = {beta:.3f}" + (", optimal" if beta == best else "")
        left.semilogy(distances, ls=style, color=colour, label=label)
        right.semilogy(estimates, ls=style, color=colour, label=label)
    left.set(xlabel="step k", ylabel="distance to the minimum", title="Theorem 1")
    right.axhline(nu, color="grey", lw=0.8)
    right.set(xlabel="step k", ylabel="‖∇f(xᵏ) - ∇f(xᵏ⁻¹)‖ / ‖xᵏ - xᵏ⁻¹‖", title="Proposition 1 (grey: ν)")
    left.legend(frameon=False)
    figure.tight_layout()
    save(figure, "theorem.svg")


def pathfinder() -> None:
    """Pictures of our own, at double size: ends of two paths above the bar, of one path below."""
    images, labels = generate(120, seed=0, workers=1)
    sheet = contact_sheet(images, labels, columns=16)
    (HERE / "pathfinder.png").write_bytes(write_grey_png(sheet.repeat(2, 0).repeat(2, 1)))


if __name__ == "__main__":
    matplotlib.rcParams["svg.hashsalt"] = "momentum-transformer"
    weights()
    theorem()
    pathfinder()

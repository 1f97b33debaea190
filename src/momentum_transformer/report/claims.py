"""The paper's claims, its words, and what finished runs and measurements say of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..experiments.lra.lra_scales import TASKS as ARENA
from .collect import Run
from .comparisons import ACCURACY, BITS, SPEED
from .evidence import (
    Judge,
    closed_form,
    compared,
    connection_beta,
    generation,
    linear_time,
    listops,
    smaller_beta,
    translation,
)
from .page import SPREAD
from .tables import Table


@dataclass(frozen=True)
class Claim:
    title: str
    words: str
    where: str  # in the paper
    command: str
    evidence: Judge


PICTURES = {"mnist": BITS, "cifar10": BITS}
CLAIMS = (
    Claim(
        "Momentum improves linear attention",
        "utilizes momentum to improve the accuracy of linear transformers",
        "abstract",
        "momentum reproduce gap --seeds 3",
        compared(("momentum", "linear")),
    ),
    Claim(
        "Momentum converges faster",
        "Both the momentum and the adaptive momentum transformers converge much faster and achieve better training "
        "loss than the linear transformer",
        "copy task",
        "momentum reproduce copy --seeds 3",
        compared(("momentum", "linear"), ("adaptive-momentum", "linear"), measures={"copy": SPEED}),
    ),
    Claim(
        "Adaptive momentum beats the tuned connection",
        "This adaptive momentum eliminates the need to search for the optimal momentum value and further enhances the "
        "performance of the momentum transformer",
        "abstract",
        "momentum reproduce copy --seeds 3; momentum reproduce mnist --seeds 3",
        compared(("adaptive-momentum", "momentum-connection")),
    ),
    Claim(
        "Momentum beats softmax on MNIST",
        "Momentum-based transformers even outperform softmax transformers in this task",
        "MNIST",
        "momentum reproduce mnist --seeds 3",
        compared(("momentum", "softmax"), ("adaptive-momentum", "softmax"), measures={"mnist": BITS}),
    ),
    Claim(
        "Momentum draws better pictures than linear attention",
        "all momentum-based transformers not only attain better bits/dim but also have comparable image generation "
        "throughput",
        "MNIST; CIFAR10",
        "momentum reproduce mnist --seeds 3; momentum reproduce cifar10 --seeds 3",
        compared(
            *((m, "linear") for m in ("momentum", "momentum-connection", "adaptive-momentum")), measures=PICTURES
        ),
    ),
    Claim(
        "Smaller β is better",
        "smaller β yields better results in terms of train loss and test accuracy than large ones",
        "ablation studies",
        "momentum reproduce copy-ablation-beta --seeds 3",
        smaller_beta,
    ),
    Claim(
        "The connection's β: 0.99 or 0.01",
        "the best constant β̃ that are carefully fine-tuned, i.e. β̃ = 0.01; Table 1 has 0.99",
        "ablation studies; Table 1",
        "momentum reproduce copy-ablation-connection --seeds 3",
        connection_beta,
    ),
    Claim(
        "On ListOps linear-time models stay far behind softmax",
        "The adaptive momentum transformer performs the best on every task except the LipsOps, far behind the softmax "
        "transformer and Linformer",
        "Long-Range Arena",
        "momentum reproduce lra --seeds 3; momentum reproduce tables --scale medium --queue",
        listops,
    ),
    Claim(
        "Momentum is best elsewhere in Long Range Arena",
        "Both momentum-based transformers outperform linear transformers in all tasks",
        "Long-Range Arena",
        "momentum reproduce lra --seeds 3",
        compared(("momentum", "linear"), ("adaptive-momentum", "linear"), measures=dict.fromkeys(ARENA, ACCURACY)),
    ),
    Claim(
        "Much faster than softmax in generation",
        "both momentum and adaptive momentum transformers are able to generate images much faster than the standard "
        "softmax transformer",
        "image generation",
        "python -m momentum_transformer.bench.picture_speed",
        generation,
    ),
    Claim(
        "Much more efficient than softmax in translation",
        "momentum-based models are comparable with the linear transformer and much more efficient than the standard "
        "softmax transformer",
        "machine translation",
        "python -m momentum_transformer.bench.translation_speed",
        translation,
    ),
    Claim(
        "Linear time",
        "while maintaining linear memory and computational complexities",
        "abstract",
        "python -m momentum_transformer.bench.attention_costs",
        linear_time,
    ),
    Claim(
        "A momentum that depends on the data would break the closed form",
        "the adaptive momentum does not apply to β since it will break the closed unrolling form",
        "adaptive momentum",
        "momentum train recall --model gated-momentum",
        closed_form,
    ),
)


def claims_markdown(runs: Sequence[Run], results: Path) -> str:
    """All claims: a table of verdicts, then each with its words, evidence and command."""
    judged = [(claim, claim.evidence(runs, results)) for claim in CLAIMS]
    summary = tuple((claim.title, evidence.verdict, evidence.why) for claim, evidence in judged)
    parts = [Table("", ("claim", "verdict", "why"), summary).markdown(), f"{SPREAD}\n"]
    for claim, evidence in judged:
        parts.append(
            f"## {claim.title}\n\n> {claim.words} ({claim.where})\n\n**{evidence.verdict.capitalize()}**: "
            f"{evidence.why}.\n\n"
            + (f"{evidence.table.markdown()}\n" if evidence.table else "")
            + f"Command: `{claim.command}`\n"
        )
    return "\n".join(parts)

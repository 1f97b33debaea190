"""RAdam whose steps on a CPU are one call of AdamW's fused kernel: PyTorch has none for it, and takes ten passes."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

LEAST = 5  # RAdam's ρ: up to it the variance is too uncertain, and steps are not divided by its root


class Moments(NamedTuple):
    """The tensors of one group, one of each a parameter."""

    parameters: list[Tensor]
    gradients: list[Tensor]
    averages: list[Tensor]
    squares: list[Tensor]
    steps: list[Tensor]


class RAdam(torch.optim.RAdam):
    """`torch.optim.RAdam` with decoupled weight decay: the same steps, up to rounding, and the same state."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step. A step with a known variance is one of AdamW, with another rate and another epsilon."""
        groups = []
        for group in self.param_groups:
            moments = Moments([], [], [], [], [])
            self._init_group(group, *moments)
            if moments.parameters:
                groups.append((group, moments))
        if closure is not None or not all(_fused(group["betas"], moments) for group, moments in groups):
            return super().step(closure)
        for group, moments in groups:
            _step(group, moments)
        return None


def _fused(betas: tuple[float, float], moments: Moments) -> bool:
    """Whether the kernel serves these: on the CPU, all after the same number of steps, and not the first few."""
    counts = {float(step) for step in moments.steps}
    on_cpu = all(parameter.device.type == "cpu" for parameter in moments.parameters)
    return on_cpu and len(counts) == 1 and _rectification(betas[1], counts.pop() + 1) > 0


def _rectification(beta2: float, step: float) -> float:
    """What the rate is multiplied by; 0 while the variance is not known well enough."""
    most = 2 / (1 - beta2) - 1
    length = most - 2 * step * beta2**step / (1 - beta2**step)
    if length <= LEAST:
        return 0
    return math.sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length))


def _step(group: dict[str, Any], moments: Moments) -> None:
    torch._foreach_add_(moments.steps, 1)
    beta1, beta2 = group["betas"]
    step = float(moments.steps[0])
    factor = _rectification(beta2, step)
    # of FSDP2: this process's share
    parameters, gradients, averages, squares = (
        [getattr(x, "_local_tensor", x) for x in tensors] for tensors in moments[:4]
    )
    torch._fused_adamw_(
        parameters,
        gradients,
        averages,
        squares,
        [],
        [torch.tensor(step, dtype=torch.float32)] * len(moments.steps),
        lr=group["lr"] * factor,
        beta1=beta1,
        beta2=beta2,
        weight_decay=group["weight_decay"] / factor,  # is multiplied by the rate
        eps=group["eps"] / math.sqrt(1 - beta2**step),  # AdamW adds it to the corrected root, RAdam to the bare one
        amsgrad=False,
        maximize=False,
    )

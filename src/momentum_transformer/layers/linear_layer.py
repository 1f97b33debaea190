"""The linear map that layers and models are made of."""

from torch import Tensor, nn

from ..backend.products import linear


class Linear(nn.Linear):
    """`torch.nn.Linear`, as fast as this machine can."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)

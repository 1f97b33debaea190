"""A compiler that runs graphs as they are, and notes which operators of this package are in them."""

from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func


def operators(graph: torch.fx.Graph) -> list[str]:
    """Those of this package, in the order of the graph."""
    names = [str(node.target) for node in graph.nodes if node.op == "call_function"]
    return [name.removesuffix(".default") for name in names if name.startswith("momentum.")]


class Recorder:
    """To be passed to `torch.compile` as its backend; `names` grow with every graph, of gradients too."""

    def __init__(self) -> None:
        self.graphs = 0
        self.names: list[str] = []

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        self.graphs += 1
        return aot_autograd(fw_compiler=self._note, bw_compiler=self._note)(graph, inputs)

    def _note(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        self.names += operators(graph.graph)
        return make_boxed_func(graph.forward)

"""`momentum bench --transformers`: mixers and small models of Transformers, alone and on our kernels, in one run.

One thread, in processor time, which a busy machine does not stretch.
"""

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..install import install_hint
from ..training.provenance import provenance
from .measured_shapes import BenchError
from .suite import FORMAT

WORKS = ("prefill", "training")
WHO = ("theirs", "ours")
NEAR = 1e-4  # outputs of both, relative, before anything is timed
GROWTH = 4.5  # of the time of a call with four times the tokens, at the most, for linear mixers


@dataclass(frozen=True)
class Subject:
    """A kind of mixer: an architecture of Transformers at width 1024, with heads of the size that is in use."""

    kind: str
    architecture: str
    options: dict[str, Any]
    described: str

    def model(self, *, layers: int, width: int, vocabulary: int, dtype: torch.dtype) -> Any:
        """A random causal language model; every fourth layer is softmax attention where the architecture has it."""
        from transformers import AutoConfig, AutoModelForCausalLM

        torch.manual_seed(0)
        kinds = ["full_attention" if i % 4 == 3 else "linear_attention" for i in range(layers)]
        mixed: dict[str, Any] = {"layer_types": kinds}
        if self.architecture == "mamba2":
            mixed = {"num_heads": 2 * width // self.options["head_dim"]}
        if self.architecture == "kimi_linear":
            mixed["mlp_layer_types"] = ["dense"] * layers
        small = {"hidden_size": width, "num_hidden_layers": layers, "vocab_size": vocabulary}
        tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}
        config = AutoConfig.for_model(self.architecture, **small, **tokens, **mixed, **self.options)
        return AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


SUBJECTS = (
    Subject(
        "gated delta",
        "qwen3_5_text",
        {
            "intermediate_size": 3584,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "linear_num_key_heads": 8,
            "linear_num_value_heads": 16,
        },
        "Qwen3.5: 8 key and 16 value heads of 128, every fourth layer softmax",
    ),
    Subject(
        "KDA",
        "kimi_linear",
        {
            "intermediate_size": 4096,
            "num_attention_heads": 8,
            "num_key_value_heads": 8,
            "linear_num_heads": 16,
        },
        "Kimi Linear: 16 heads of 128, dense feed-forward networks, every fourth layer softmax",
    ),
    Subject(
        "Mamba-2",
        "mamba2",
        {"head_dim": 64, "state_size": 128, "n_groups": 1},
        "Mamba-2 370m: 32 heads of 64, state 128, no other layers",
    ),
)


@dataclass(frozen=True)
class Plan:
    """What is measured.

    Args:
        seconds: how long one cell is repeated; ten times as long where there is a bar.
        call: the longest call that is made.
        memory: tokens of the step whose peak memory is measured, and of the layers that have bars; 0: neither.
    """

    lengths: tuple[int, ...] = (512, 2048, 8192)
    dtypes: tuple[str, ...] = ("float32", "bfloat16")
    width: int = 1024
    layers: int = 4
    vocabulary: int = 32_000
    decoded: int = 8
    seconds: float = 2.0
    call: float = 30.0
    memory: int = 2048


FULL_PLAN = Plan()
QUICK_PLAN = Plan((16, 32), ("float32",), width=64, layers=4, vocabulary=50, decoded=2, seconds=0.0, memory=0)


def run_transformers(plan: Plan, watch: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """The record; `watch` gets it after each row, which is its last one."""
    try:
        from transformers import __version__, logging
    except ImportError:
        raise BenchError(f"--transformers needs Transformers: {install_hint('hf')}") from None
    logging.set_verbosity_error()  # that its references are slow is what is measured
    record: dict[str, Any] = {"format": FORMAT, **provenance(), "transformers": __version__, "width": plan.width}
    record |= {"layers": plan.layers, "vocabulary": plan.vocabulary, "decoded": plan.decoded}
    record["subjects"] = {one.kind: one.described for one in SUBJECTS}
    rows: list[dict[str, Any]] = []
    record |= {"rows": rows, "memory": []}
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for row in _rows(plan):
            rows.append(row)
            watch(record)
    finally:
        torch.set_num_threads(before)
    from .transformers_memory import measure  # a program of its own, which reads this file

    if plan.memory:
        record["memory"] = [measure(one.kind, plan.memory) for one in SUBJECTS]
    return record


def _rows(plan: Plan) -> Iterator[dict[str, Any]]:
    for subject in SUBJECTS:
        for name in plan.dtypes:
            dtype = getattr(torch, name)
            sizes = {"width": plan.width, "dtype": dtype}
            what = {"kind": subject.kind, "dtype": name}
            mixer = mixers_of(subject.model(layers=1, vocabulary=8, **sizes))[0]
            if name == "float32":
                _agree(mixer, torch.randn(1, plan.lengths[0], plan.width))
            yield from _works(mixer, partial(_states, plan.width, dtype), what | {"of": "layer"}, plan)
            model = subject.model(layers=plan.layers, vocabulary=plan.vocabulary, **sizes)
            draw = partial(_tokens, plan.vocabulary)
            yield from _works(model, draw, what | {"of": "model"}, plan)
            for n in plan.lengths:
                yield what | {"of": "model", "work": "decoding", "n": n} | _decode(model, draw(n), plan)


def _states(width: int, dtype: torch.dtype, n: int) -> Tensor:
    return torch.randn(1, n, width, dtype=dtype)


def _tokens(vocabulary: int, n: int) -> Tensor:
    return torch.randint(vocabulary, (1, n))


def _works(
    module: nn.Module, draw: Callable[[int], Tensor], what: dict[str, Any], plan: Plan
) -> Iterator[dict[str, Any]]:
    """Prefill and training at every length; a call that would take too long is not made."""
    for work in WORKS:
        call = prefill if work == "prefill" else training_step
        last: dict[str, float] = {}
        for n in plan.lengths:
            x = draw(n)
            row: dict[str, Any] = what | {"work": work, "n": n}
            for who in WHO:
                foreseen = last.get(who, 0.0) * GROWTH
                if foreseen > plan.call:
                    row["skipped"] = row.get("skipped", {}) | {who: foreseen}
                    last[who] = foreseen
            taking_part = [who for who in WHO if who not in row.get("skipped", {})]
            calls = {who: _one(module, who, partial(call, module, x)) for who in taking_part}
            if what["of"] == "layer":
                calls["products"] = _products(module, x, training=work == "training")
            row |= _best(calls, plan.seconds * (10 if what["of"] == "layer" and n == plan.memory else 1))
            last |= {who: row[who] for who in taking_part}
            module.zero_grad(set_to_none=True)
            yield row


def _one(module: nn.Module, who: str, call: Callable[[], object]) -> Callable[[], float]:
    """Seconds of a call by Transformers or by us."""

    def timed() -> float:
        choose(module, who)
        start = time.process_time()
        call()
        return time.process_time() - start

    return timed


def _best(calls: dict[str, Callable[[], float]], seconds: float) -> dict[str, float]:
    """The best time of each, in turns, for about `seconds` and at most 25 rounds."""
    least = {who: call() for who, call in calls.items()}
    rounds = min(24, int(seconds / max(sum(least.values()), 1e-9)))
    for _ in range(rounds):
        least = {who: min(least[who], call()) for who, call in calls.items()}
    return least


def _products(module: nn.Module, x: Tensor, *, training: bool) -> Callable[[], float]:
    """Seconds of the projections alone, which no implementation of the mixer can beat."""
    lines = [one for one in module.modules() if isinstance(one, nn.Linear)]
    inputs = [torch.randn(*x.shape[:2], one.in_features, dtype=x.dtype, requires_grad=training) for one in lines]
    grads = [torch.randn(*x.shape[:2], one.out_features, dtype=x.dtype) for one in lines]

    def once() -> float:
        choose(module, "ours")
        start = time.process_time()
        for project, given, grad in zip(lines, inputs, grads, strict=True):
            if training:
                project(given).backward(grad)
            else:
                with torch.no_grad():
                    project(given)
        return time.process_time() - start

    return once


def prefill(module: nn.Module, x: Tensor) -> None:
    with torch.no_grad():
        module(x) if x.is_floating_point() else module(x, logits_to_keep=1)


def training_step(module: nn.Module, x: Tensor) -> None:
    """A training step without the optimizer: forward, backward, all gradients."""
    if x.is_floating_point():
        x = x.detach().requires_grad_()
        module(x).float().square().mean().backward()
    else:
        module(x, labels=x, use_cache=False).loss.backward()
    module.zero_grad(set_to_none=True)


@torch.no_grad()
def _decode(model: Any, ids: Tensor, plan: Plan) -> dict[str, float]:
    """Seconds a token, after a prompt."""
    name = "cache_params" if model.config.model_type == "mamba2" else "past_key_values"
    choose(model, "ours")
    kept = model(ids, use_cache=True, logits_to_keep=1)[name]

    def tokens(cache: Any) -> None:
        for i in range(plan.decoded):
            model(ids[:, i : i + 1], **{name: cache}, use_cache=True)

    calls = {who: _one(model, who, partial(tokens, copy.deepcopy(kept))) for who in WHO}
    one_token = _products(model, torch.empty(1, 1, 1, dtype=model.dtype), training=False)
    calls["products"] = lambda: sum(one_token() for _ in range(plan.decoded))
    return {who: seconds / plan.decoded for who, seconds in _best(calls, 10 * plan.seconds).items()}


def mixers_of(module: nn.Module) -> list[nn.Module]:
    from ..hf.served_mixers import mixer_class

    return [one for one in module.modules() if mixer_class(one) is not None]


def choose(module: nn.Module, who: str) -> None:
    """Let Transformers run a module, or us."""
    from ..hf.exchange import exchange_products, prepare, restore_products, switch_back, switch_over
    from ..hf.served_mixers import mixer_class

    (exchange_products if who == "ours" else restore_products)(module)
    for mixer in mixers_of(module):
        found = mixer_class(mixer)
        assert found is not None
        if who == "ours":
            prepare(*found)
            switch_over(mixer, found[0])
        else:
            switch_back(mixer)


def _agree(mixer: nn.Module, x: Tensor) -> None:
    said = {}
    for who in WHO:
        choose(mixer, who)
        with torch.no_grad():
            said[who] = mixer(x)
    error = float((said["ours"] - said["theirs"]).abs().max() / said["theirs"].abs().max())
    if not error < NEAR:
        raise BenchError(f"{type(mixer).__name__} differs from Transformers by {error:.1e}; nothing is timed")

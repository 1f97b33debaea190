"""`accelerate(model)`: the linear-attention mixers of a Transformers model on a CPU run on our kernels."""

import functools
import logging
from collections import Counter
from dataclasses import dataclass
from typing import Any

from torch import nn

from ..backend.choose import backends
from ..install import install_hint
from .call_checks import mixes_tokens
from .exchange import exchange_products, prepare, restore_products, switch_back, switch_over, watch
from .served_mixers import ARCHITECTURES, mixer_class

MAJOR = 5  # of Transformers
REPORT = "acceleration"  # the attribute of an accelerated model
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Acceleration:
    """What `accelerate` did to a model; printed, it is one line.

    Args:
        replaced: how many mixers run on our kernels, by their class and its recurrence.
        kept: how many layers that mix tokens run as before, by their class and why.
        products: how many linear maps, of any layer, oneDNN multiplies instead of MKL.
    """

    replaced: dict[tuple[str, str], int]
    kept: dict[tuple[str, str], int]
    products: int = 0

    def __str__(self) -> str:
        ours = "; ".join(f"{count} {name} on native kernels: {what}" for (name, what), count in self.replaced.items())
        theirs = "; ".join(f"{count} {name} as before: {why}" for (name, why), count in self.kept.items())
        products = f"{self.products} Linear by oneDNN" if self.products else ""
        return "; ".join(filter(None, (ours, products, theirs)))


def accelerate(model: Any = None) -> Any:
    """Run a Transformers model on our CPU kernels, in training and in `generate`; weights and configuration stay.

    Every mixer that the kernels know is switched over; on processors of AMD, linear maps go to oneDNN. What was done
    is logged, and kept as `model.acceleration`; an error changes nothing. Moved to another device, the model runs as
    before.

    Args:
        model: on a CPU; without it, all models that are made from now on are accelerated, as far as they can be.

    Returns:
        The model itself.

    Examples:
        >>> from transformers import AutoConfig, AutoModelForCausalLM
        >>> sizes = dict(hidden_size=64, num_heads=2, num_hidden_layers=2, vocab_size=99, n_groups=1)
        >>> model = AutoModelForCausalLM.from_config(AutoConfig.for_model("mamba2", **sizes))  # or from_pretrained
        >>> model = accelerate(model)
    """
    _check_versions()
    if model is None:
        _made_afterwards(True)
        return None
    if not isinstance(model, nn.Module):
        what = f"the class {model.__name__}" if isinstance(model, type) else f"a {type(model).__name__}"
        raise ValueError(f"accelerate takes a model, such as AutoModelForCausalLM.from_pretrained(...), not {what}")
    elsewhere = {str(x.device) for x in (*model.parameters(), *model.buffers()) if x.device.type != "cpu"}
    if elsewhere:
        raise ValueError(f"accelerate needs a model on a CPU, and this one is on {', '.join(sorted(elsewhere))}")
    report = _switch_over(model)
    if not report.replaced:
        raise ValueError(
            f"accelerate knows no mixer of {type(model).__name__}; it knows those of {', '.join(ARCHITECTURES)}"
        )
    logger.info("%s: %s", type(model).__name__, report)
    return model


def restore(model: Any = None) -> Any:
    """Undo `accelerate`.

    Args:
        model: an accelerated one; without it, models that are made from now on are as Transformers makes them.

    Returns:
        The model itself.

    Examples:
        >>> from transformers import AutoConfig, AutoModelForCausalLM
        >>> sizes = dict(hidden_size=64, num_heads=2, num_hidden_layers=2, vocab_size=99, n_groups=1)
        >>> model = accelerate(AutoModelForCausalLM.from_config(AutoConfig.for_model("mamba2", **sizes)))
        >>> model = restore(model)
    """
    if model is None:
        _made_afterwards(False)
        return None
    for module in model.modules():
        switch_back(module)
        module.__dict__.pop(REPORT, None)
    restore_products(model)
    return model


def _check_versions() -> None:
    try:
        import transformers
    except ImportError as error:
        raise ValueError(f"accelerate needs Transformers: {install_hint('hf')}") from error
    if int(transformers.__version__.split(".")[0]) != MAJOR:
        raise ValueError(f"accelerate knows Transformers {MAJOR}, and {transformers.__version__} is installed")
    native = backends()[0]
    if not native.available:
        raise ValueError(f"accelerate needs the native kernels: {native.reason}")


def _switch_over(model: nn.Module) -> Acceleration:
    """Every mixer that the kernels know, and what was done."""
    ours, kept = [], Counter[tuple[str, str]]()
    replaced = Counter[tuple[str, str]]()
    for module in model.modules():
        found = mixer_class(module)
        name = type(module).__name__
        if found is None:
            if mixes_tokens(module):
                kept[name, "not a linear attention that the kernels know"] += 1
        elif type(module).forward is not found[0].forward:
            kept[name, f"it has a forward of its own, not that of {found[0].__name__}"] += 1
        else:
            ours.append((module, found))
            replaced[name, found[1].name] += 1
    for base, kind in dict(found for _, found in ours).items():
        prepare(base, kind)
    for module, (base, _) in ours:
        switch_over(module, base)
    if ours:
        watch(model)
    report = Acceleration(dict(replaced), dict(kept), exchange_products(model) if ours else 0)
    if ours:
        setattr(model, REPORT, report)
    return report


def _made_afterwards(ours: bool) -> None:
    """Whether a model switches itself over at the end of its construction."""
    from transformers import PreTrainedModel

    finish = PreTrainedModel.post_init
    undone = getattr(finish, REPORT, None)  # what stood there before us
    if not ours and undone is not None:
        PreTrainedModel.post_init = undone  # type: ignore[method-assign]
    if not ours or undone is not None:
        return

    @functools.wraps(finish)
    def post_init(model: Any) -> None:
        finish(model)
        try:
            _switch_over(model)
        except ValueError as error:  # an optional speed-up must not keep a model from being made
            logger.warning("%s is not accelerated: %s", type(model).__name__, error)

    setattr(post_init, REPORT, finish)
    PreTrainedModel.post_init = post_init  # type: ignore[method-assign]

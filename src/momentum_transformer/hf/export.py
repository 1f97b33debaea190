"""A run directory as a folder of Transformers: config.json, model.safetensors, a model card, of text a tokenizer."""

from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from ..durable import replacing_folder
from ..experiments.configuration import ConfigurationError, nearest
from ..experiments.runs import Request, load_task
from ..experiments.text import TextTask
from ..training.run_directory import RunDirectory, RunError
from .conversion import to_transformers
from .tokenizer import to_tokenizer

CARD = """---
library_name: transformers
tags:
- momentum-transformer
- linear-attention
pipeline_tag: {task}
---

# {experiment}, {model}

A model of the package momentum-transformer, trained on its experiment `{experiment}` at scale `{scale}` with seed
{seed}, and written by `momentum export`. It has {parameters:,} parameters.

```python
import momentum_transformer.hf  # so that Transformers knows these models
from transformers import {auto}

model = {auto}.from_pretrained("{folder}")
```
{writing}
Tokens are those of the experiment: whole numbers from 0 to {last}. A token whose `attention_mask` is 0 does not exist,
wherever it stands.
{metrics}"""

WRITING = """
It writes text:

```python
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{folder}")
made = model.generate(**tokenizer("Once", return_tensors="pt"), max_new_tokens=100, do_sample=True)
print(tokenizer.decode(made[0]))
```
"""


def export_run(run: Path, out: Path, *, checkpoint: str = "best") -> None:
    """Write the trained model of a run to `out`, from which `from_pretrained` loads it.

    Args:
        run: a run directory of a language model, or of a classifier of one sequence.
        out: a folder that is not there yet, or is empty.
        checkpoint: best or last.
    """
    if checkpoint not in ("best", "last"):
        raise nearest("checkpoint", checkpoint, ("best", "last"))
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunError(f"{out} is there already and not empty; name another place")
    task, request, config = load_task(run, checkpoint)
    try:
        model = to_transformers(task.model, *_choices(config))
    except ValueError as error:
        raise ConfigurationError(f"{run} is a run of {request.model} that cannot be exported: {error}") from None
    if labels := getattr(task, "labels", None):  # of a table
        model.config.id2label = dict(enumerate(labels))
        model.config.label2id = {label: number for number, label in enumerate(labels)}
    tokenizer = to_tokenizer(task.units) if isinstance(task, TextTask) else None
    card = _card(request, model, out, RunDirectory(run), writes=tokenizer is not None)
    try:
        with replacing_folder(out) as folder:
            model.save_pretrained(folder)
            if tokenizer is not None:
                tokenizer.save_pretrained(folder)
            (folder / "README.md").write_text(card, encoding="utf-8")
    except (OSError, SafetensorError) as error:
        raise RunError(f"{out} cannot be written: {error}") from None


def _choices(config: Any) -> tuple[Any, Any]:
    """The mixers and the residual rule of a run."""
    described = getattr(config, "model", None)
    if described is None or not hasattr(described, "mixers"):
        raise ValueError("its configuration has no mixers")
    return described.mixers(), described.connection.make()


def _card(request: Request, model: Any, out: Path, run: RunDirectory, *, writes: bool) -> str:
    language = type(model).__name__.endswith("CausalLM")
    tests = [line for line in run.metrics() if line["kind"] in ("validation", "test")]
    metrics = ""
    if tests:
        line = tests[-1]
        numbers = [(name, value) for name, value in line.items() if isinstance(value, float)]
        rows = "".join(f"| {name} | {value:.4g} |\n" for name, value in numbers)
        metrics = (
            f"\nAfter {line['step']} steps, on the {line['kind']} split:\n\n| metric | value |\n|---|---:|\n{rows}"
        )
    return CARD.format(
        task="text-generation" if language else "text-classification",
        auto="AutoModelForCausalLM" if language else "AutoModelForSequenceClassification",
        experiment=request.experiment,
        model=request.model,
        scale=request.scale,
        seed=request.seed,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        folder=out,
        writing=WRITING.format(folder=out) if writes else "",
        last=model.config.vocab_size - 1,
        metrics=metrics,
    )

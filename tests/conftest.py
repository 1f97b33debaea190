"""Shapes in the signatures of the equations are checked while the tests run.

Not in the front doors (attention, softmax, connection, adaptive): there, wrong shapes must reach our own messages.
"""

import os

# Some virtual machines announce AMX and then refuse its instructions, and bfloat16 layers die with them.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import torch
from jaxtyping import install_import_hook

EQUATIONS = (
    "bidirectional",
    "chunked",
    "geometric",
    "heavy_ball",
    "lsh",
    "masking",
    "quadratic",
    "recurrent",
)
if os.environ.get("MOMENTUM_CHECK_SHAPES", "1") == "1":
    install_import_hook([f"momentum_transformer.ops.{name}" for name in EQUATIONS], "beartype.beartype")

torch.set_num_threads(1)  # pytest-xdist runs one worker a core

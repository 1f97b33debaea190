"""The models by name, in the order of every table and figure: what each is made of, and how figures draw it."""

from ..layers.named_model import NamedModel
from . import added_models
from .mixer_settings import (
    DeltaSettings,
    GatedDeltaSettings,
    GatedMomentumSettings,
    HybridSettings,
    LinearSettings,
    LinformerSettings,
    MomentumDeltaSettings,
    MomentumSettings,
    PerformerSettings,
    ReformerSettings,
    RetentionSettings,
    SoftmaxSettings,
)

ADDED = tuple(row for row in vars(added_models).values() if isinstance(row, NamedModel))
# fmt: off
NAMED = (
    NamedModel("softmax", SoftmaxSettings, "#000000", "-", "o", origin="paper"),
    NamedModel("reformer", ReformerSettings, "#E69F00", (0, (1, 1)), "v", origin="paper"),
    NamedModel("performer", PerformerSettings, "#56B4E9", (0, (3, 1, 1, 1)), "<", origin="arena"),
    NamedModel("linformer", LinformerSettings, "#8C6D31", (0, (2, 2)), ">", origin="arena"),
    NamedModel("linear", LinearSettings, "#0072B2", "--", "s", origin="paper"),
    NamedModel("momentum", MomentumSettings, "#009E73", "-.", "^", origin="paper"),
    NamedModel("momentum-connection", MomentumSettings, "#CC79A7", (0, (4, 1, 1, 1, 1, 1)), "D", "momentum",
               "momentum", "paper"),
    NamedModel("adaptive-momentum", MomentumSettings, "#D55E00", (0, (6, 1)), "P", "adaptive",
               "momentum", "paper"),
    NamedModel("gated-momentum", GatedMomentumSettings, "#66A61E", (0, (5, 2, 1, 2)), "X"),
    NamedModel("retention", RetentionSettings, "#7F7F7F", (0, (1, 2)), "p"),
    NamedModel("delta", DeltaSettings, "#6A3D9A", (0, (3, 2)), "h"),
    NamedModel("gated-delta", GatedDeltaSettings, "#B2182B", (0, (8, 2)), "*"),
    NamedModel("momentum-delta", MomentumDeltaSettings, "#01665E", (0, (8, 1, 2, 1)), "d"),
    NamedModel("hybrid", HybridSettings, "#4D4D4D", (0, (10, 1, 1, 1)), "8"),
    *ADDED,
)
# fmt: on
BY_NAME = {model.name: model for model in NAMED}
MIXERS = {model.name: model for model in NAMED if not model.attention}  # by what a configuration calls them
ALL_MODELS = tuple(BY_NAME)
MODELS = tuple(model.name for model in NAMED if model.origin == "paper")  # of the copy task and most tables
PAPER_MODELS = tuple(model.name for model in NAMED if model.origin != "family")
FAMILY = tuple(model.name for model in NAMED if model.origin == "family")

"""Networks by name: the paper's fifteen methods, each built as its authors built it, and our own."""

# Importing a family registers its models.
from besselnet.models import bcnn, gated, peers, plain, recommended, resnet  # noqa: F401
from besselnet.models.describe import (
    ModelDescription,
    count_parameters,
    describe_model,
    paper_models,
)
from besselnet.models.pretrained import list_pretrained
from besselnet.models.registry import (
    ModelInfo,
    ModelRecipe,
    PaperRow,
    create_model,
    list_models,
    model_info,
    register_model,
)

__all__ = [
    "ModelDescription",
    "ModelInfo",
    "ModelRecipe",
    "PaperRow",
    "count_parameters",
    "create_model",
    "describe_model",
    "list_models",
    "list_pretrained",
    "model_info",
    "paper_models",
    "register_model",
]

"""Networks by name: the paper's fifteen methods, each built as its authors built it, and our own."""

# Importing a family registers its models.
from besselnet.models import _bcnn, _gated, _plain, _recommended, _resnet  # noqa: F401
from besselnet.models._describe import (
    ModelDescription,
    count_parameters,
    describe_model,
    paper_models,
)
from besselnet.models._pretrained import list_pretrained
from besselnet.models._registry import (
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

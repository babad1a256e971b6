"""Networks by name: the paper's fifteen methods, each built as its authors built it, and our own."""

# Importing a family registers its models.
from besselnet.models import _bcnn, _gated, _plain, _recommended, _resnet  # noqa: F401
from besselnet.models._create import create_model, list_pretrained
from besselnet.models._describe import (
    ModelDescription,
    count_parameters,
    describe_model,
    paper_models,
)
from besselnet.models._folder import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    load_network,
    network_config,
    read_network_config,
    save_network,
)
from besselnet.models._registry import (
    ModelInfo,
    ModelRecipe,
    PaperRow,
    list_models,
    model_info,
    register_model,
)

__all__ = [
    "CONFIG_FILE",
    "WEIGHTS_FILE",
    "ModelDescription",
    "ModelInfo",
    "ModelRecipe",
    "PaperRow",
    "count_parameters",
    "create_model",
    "describe_model",
    "list_models",
    "list_pretrained",
    "load_network",
    "model_info",
    "network_config",
    "paper_models",
    "read_network_config",
    "register_model",
    "save_network",
]

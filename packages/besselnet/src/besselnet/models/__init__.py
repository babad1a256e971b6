"""Networks by name: build with `create_model`, list with `list_models`, save with `save_network`."""

# Importing a family registers its models, in the order of `list_models`: those to start with first.
# isort: off
from besselnet.models import _besselnet  # noqa: F401
from besselnet.models._gated import GatedNetwork, GateReport
from besselnet.models import _unet  # noqa: F401
from besselnet.models import _paper  # noqa: F401
# isort: on

from besselnet.models._create import (
    ModelDescription,
    adapt_network,
    count_parameters,
    create_model,
    describe_model,
    list_pretrained,
    outline_model,
    packaged_folder,
)
from besselnet.models._folder import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    check_weights,
    load_network,
    network_config,
    network_files,
    read_network_config,
    save_network,
)
from besselnet.models._registry import (
    ModelInfo,
    ModelRecipe,
    check_options,
    list_models,
    model_info,
    register_model,
)
from besselnet.models.template import FeatureMaps

__all__ = [
    "CONFIG_FILE",
    "WEIGHTS_FILE",
    "FeatureMaps",
    "GateReport",
    "GatedNetwork",
    "ModelDescription",
    "ModelInfo",
    "ModelRecipe",
    "adapt_network",
    "check_options",
    "check_weights",
    "count_parameters",
    "create_model",
    "describe_model",
    "list_models",
    "list_pretrained",
    "load_network",
    "model_info",
    "network_config",
    "network_files",
    "outline_model",
    "packaged_folder",
    "read_network_config",
    "register_model",
    "save_network",
]

"""Training and evaluation of any classifier on any batches, and the run folders they leave."""

from besselnet.engine.checkpoint import (
    Checkpoint,
    load_checkpoint,
    load_weights,
    save_checkpoint,
    save_weights,
)
from besselnet.engine.config import (
    DataConfig,
    ModelConfig,
    RunConfig,
    TrainConfig,
    changed_settings,
    config_hash,
    describe_settings,
    from_dict,
    override,
    read_config,
    to_dict,
)
from besselnet.engine.evaluate import Evaluation, TurnedEvaluation, evaluate, evaluate_turned
from besselnet.engine.fit import History, NonFiniteLoss, fit
from besselnet.engine.inspect import inspect_run
from besselnet.engine.interrupt import Interrupted
from besselnet.engine.launch import is_first_process, launch
from besselnet.engine.predict import Prediction, predict
from besselnet.engine.run import (
    Run,
    default_folder,
    load_images,
    load_run,
    read_run_config,
    train_run,
)

__all__ = [
    "Checkpoint",
    "DataConfig",
    "Evaluation",
    "History",
    "Interrupted",
    "ModelConfig",
    "NonFiniteLoss",
    "Prediction",
    "Run",
    "RunConfig",
    "TrainConfig",
    "TurnedEvaluation",
    "changed_settings",
    "config_hash",
    "default_folder",
    "describe_settings",
    "evaluate",
    "evaluate_turned",
    "fit",
    "from_dict",
    "inspect_run",
    "is_first_process",
    "launch",
    "load_checkpoint",
    "load_images",
    "load_run",
    "load_weights",
    "override",
    "predict",
    "read_config",
    "read_run_config",
    "save_checkpoint",
    "save_weights",
    "to_dict",
    "train_run",
]

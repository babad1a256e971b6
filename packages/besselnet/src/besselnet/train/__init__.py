"""Training and evaluation of any classifier on any batches, and the run folders they leave."""

from besselnet.train._checkpoint import (
    Checkpoint,
    load_checkpoint,
    load_weights,
    save_checkpoint,
    save_weights,
)
from besselnet.train._config import (
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
from besselnet.train._environment import describe_environment
from besselnet.train._evaluate import Evaluation, TurnedEvaluation, evaluate, evaluate_turned
from besselnet.train._fit import History, NonFiniteLoss, fit
from besselnet.train._inspect import inspect_run
from besselnet.train._interrupt import Interrupted, StopRequest
from besselnet.train._launch import is_first_process, launch
from besselnet.train._metrics import EquivarianceError
from besselnet.train._predict import Prediction, predict
from besselnet.train._progress import ProgressLog, in_words, watched
from besselnet.train._run import (
    Run,
    build_model,
    default_folder,
    load_images,
    load_run,
    read_run_config,
    train_run,
)

__all__ = [
    "Checkpoint",
    "DataConfig",
    "EquivarianceError",
    "Evaluation",
    "History",
    "Interrupted",
    "ModelConfig",
    "NonFiniteLoss",
    "Prediction",
    "ProgressLog",
    "Run",
    "RunConfig",
    "StopRequest",
    "TrainConfig",
    "TurnedEvaluation",
    "build_model",
    "changed_settings",
    "config_hash",
    "default_folder",
    "describe_environment",
    "describe_settings",
    "evaluate",
    "evaluate_turned",
    "fit",
    "from_dict",
    "in_words",
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
    "watched",
]

"""Train, evaluate and predict with any network, and manage run folders.

Needs the extra `train`: ``pip install 'besselnet[train]'``.
"""

# ruff: noqa: E402 - what is missing is said before an import stumbles over it.

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any


def _is_missing(package: str) -> bool:
    try:
        return find_spec(package) is None
    except (ImportError, ValueError):
        return True


# All of them here, although some are imported only when they are used: training should not end where the
# first picture is to be drawn.
_missing = [
    package
    for package in ("lightning_fabric", "torchmetrics", "rich", "matplotlib", "PIL", "filelock")
    if _is_missing(package)
]
if _missing:
    raise ImportError(
        f"besselnet.train needs {', '.join(_missing)}: pip install 'besselnet[train]'"
    )

from besselnet._progress import ProgressLog, in_words
from besselnet.train._answers import feature_columns
from besselnet.train._config import (
    DataConfig,
    ModelConfig,
    RunConfig,
    TrainConfig,
    changed_settings,
    describe_settings,
    from_dict,
    make_config,
    merge_settings,
    override,
    read_config,
    to_dict,
)
from besselnet.train._digest import ImagesDigest, digest_images
from besselnet.train._environment import describe_environment, source_digest
from besselnet.train._evaluate import (
    NonFiniteLoss,
    RotatedEvaluation,
    evaluate,
    evaluate_rotated,
)
from besselnet.train._fit import fit
from besselnet.train._folds import (
    CrossValidation,
    read_folds_config,
    train_folds,
    wilson_interval,
)
from besselnet.train._history import History
from besselnet.train._images import load_images
from besselnet.train._in_flight import default_workers
from besselnet.train._mirror import MirrorTrial, try_mirror_images
from besselnet.train._predict import (
    Prediction,
    predict,
    predict_masks,
    predict_rows,
)
from besselnet.train._preview import Preview, preview_run
from besselnet.train._process import (
    Interrupted,
    StopRequest,
    choose_device,
    is_first_process,
    launch,
)
from besselnet.train._rates import RateCurve, find_learning_rate, find_run_rate
from besselnet.train._recommend import (
    Recommendation,
    recommend_config,
    recommend_settings,
    recommended_epochs,
)
from besselnet.train._report import evaluate_run, inspect_run, watched
from besselnet.train._robust import RobustSettings, evaluate_robust
from besselnet.train._run import (
    Run,
    build_model,
    default_folder,
    load_run,
    read_run_config,
    train_network,
    train_run,
)
from besselnet.train._scores import (
    Evaluation,
    LabelsEvaluation,
    MaskEvaluation,
    Result,
    ValueEvaluation,
)
from besselnet.train._shards import ShardsReport, predict_shards
from besselnet.train._speed import Speed, Timing, measure_speed, time_in_turns
from besselnet.train._tasks import (
    Classify,
    LearningTask,
    Multilabel,
    Regress,
    Segment,
    task_of,
)

if TYPE_CHECKING:
    from besselnet.train._metrics import EquivarianceError

__all__ = [
    "Classify",
    "CrossValidation",
    "DataConfig",
    "EquivarianceError",
    "Evaluation",
    "History",
    "ImagesDigest",
    "Interrupted",
    "LabelsEvaluation",
    "LearningTask",
    "MaskEvaluation",
    "MirrorTrial",
    "ModelConfig",
    "Multilabel",
    "NonFiniteLoss",
    "Prediction",
    "Preview",
    "ProgressLog",
    "RateCurve",
    "Recommendation",
    "Regress",
    "Result",
    "RobustSettings",
    "RotatedEvaluation",
    "Run",
    "RunConfig",
    "Segment",
    "ShardsReport",
    "Speed",
    "StopRequest",
    "Timing",
    "TrainConfig",
    "ValueEvaluation",
    "build_model",
    "changed_settings",
    "choose_device",
    "default_folder",
    "default_workers",
    "describe_environment",
    "describe_settings",
    "digest_images",
    "evaluate",
    "evaluate_robust",
    "evaluate_rotated",
    "evaluate_run",
    "feature_columns",
    "find_learning_rate",
    "find_run_rate",
    "fit",
    "from_dict",
    "in_words",
    "inspect_run",
    "is_first_process",
    "launch",
    "load_images",
    "load_run",
    "make_config",
    "measure_speed",
    "merge_settings",
    "override",
    "predict",
    "predict_masks",
    "predict_rows",
    "predict_shards",
    "preview_run",
    "read_config",
    "read_folds_config",
    "read_run_config",
    "recommend_config",
    "recommend_settings",
    "recommended_epochs",
    "source_digest",
    "task_of",
    "time_in_turns",
    "to_dict",
    "train_folds",
    "train_network",
    "train_run",
    "try_mirror_images",
    "watched",
    "wilson_interval",
]


def __getattr__(name: str) -> Any:
    """`EquivarianceError` when it is first used: it needs torchmetrics, which is slow to import."""
    if name == "EquivarianceError":
        from besselnet.train._metrics import EquivarianceError

        return EquivarianceError
    raise AttributeError(f"module 'besselnet.train' has no attribute {name!r}")

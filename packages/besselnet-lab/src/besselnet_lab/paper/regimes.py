"""The paper's High, Intermediate and Low settings (section 6)."""

from besselnet.checks import check_choice
from besselnet.data import ImageSet, stratified_split

# The share of all available images that is used for training.
_SHARES = {
    "mnist": {"high": 0.2, "intermediate": 0.02, "low": 0.002},
    "other": {"high": 0.8, "intermediate": 0.08, "low": 0.008},
}


def take_regime(
    imageset: ImageSet, regime: str, *, family: str = "other", seed: int, by_group: bool = False
) -> tuple[ImageSet, ImageSet]:
    """(training images, all the others as test images).

    `imageset` is the merged set (`Splits.merged()`); `regime` is "high", "intermediate" or "low";
    `family` is "mnist" (20%, 2%, 0.2% for training) or "other" (80%, 8%, 0.8%).
    """
    check_choice("family", family, tuple(_SHARES))
    check_choice("regime", regime, tuple(_SHARES[family]))
    share = _SHARES[family][regime]
    train, test = stratified_split(imageset, (share, 1 - share), seed, by_group=by_group)
    return train, test

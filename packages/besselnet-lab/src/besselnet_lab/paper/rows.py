"""The fifteen rows of the paper's result tables, and the model that stands for each.

The published experiment code reaches the kernel spaces of escnn under reversed names: its "HNets" have
the full steerable kernel space, its "irreps" a restricted one. Models are named by what they are, so these
rows have two readings: the model that the name means, and the model that the code ran under it.
"""

from typing import NamedTuple

__all__ = ["PaperRow", "RowModels", "paper_models"]


class PaperRow(NamedTuple):
    """A row of the paper's result tables, spelled as in its published numbers."""

    method: str
    group: str


class RowModels(NamedTuple):
    """Names of the models of a row.

    Attributes:
        by_name: the model that the row's name means.
        by_code: the model that the published experiment code ran under that name, or None where the
            two agree.
    """

    by_name: str
    by_code: str | None = None


# The second order is frequency 2 in Harmonic Networks; the published code runs frequency 3.
_MODELS = {
    PaperRow("vanilla CNN", "trivial"): RowModels("cnn"),
    PaperRow("ResNet-18", "trivial"): RowModels("resnet18"),
    PaperRow("E(2)-CNN regular", "C4"): RowModels("e2cnn_c4"),
    PaperRow("E(2)-CNN regular", "C8"): RowModels("e2cnn_c8"),
    PaperRow("E(2)-CNN irreps<=1", "SO(2)"): RowModels("e2cnn_so2_irreps1", "hnet_so2_1"),
    PaperRow("E(2)-CNN irreps<=3", "SO(2)"): RowModels("e2cnn_so2_irreps3", "hnet_so2_3"),
    PaperRow("E(2)-CNN irreps<=1", "O(2)"): RowModels("e2cnn_o2_irreps1", "hnet_o2_1"),
    PaperRow("E(2)-CNN irreps<=3", "O(2)"): RowModels("e2cnn_o2_irreps3", "hnet_o2_3"),
    PaperRow("HNet order 1", "SO(2)"): RowModels("hnet_so2_1", "e2cnn_so2_irreps1"),
    PaperRow("HNet order 2", "SO(2)"): RowModels("hnet_so2_2", "e2cnn_so2_irreps3"),
    PaperRow("B-CNN k_max", "SO(2)"): RowModels("bcnn_so2"),
    PaperRow("B-CNN k_max", "O(2)"): RowModels("bcnn_o2"),
    PaperRow("B-CNN k_max", "SO(2)+"): RowModels("bcnn_so2_plus"),
    PaperRow("B-CNN k_max", "O(2)+"): RowModels("bcnn_o2_plus"),
    PaperRow("B-CNN k_max/2", "SO(2)"): RowModels("bcnn_so2_strong"),
}


def paper_models() -> dict[PaperRow, RowModels]:
    """Which models stand for each row of the paper's tables."""
    return dict(_MODELS)

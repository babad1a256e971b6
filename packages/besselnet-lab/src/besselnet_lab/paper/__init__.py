"""What the paper compares: its rows as models, the peers on escnn, its published numbers.

Importing this package registers the peers and the replication models with `besselnet.models`.
"""

from besselnet_lab.paper.peers import PEERS
from besselnet_lab.paper.reference import Published, published, training_images
from besselnet_lab.paper.regimes import take_regime
from besselnet_lab.paper.replication import varied_model
from besselnet_lab.paper.rows import PaperRow, RowModels, paper_models

__all__ = [
    "PEERS",
    "PaperRow",
    "Published",
    "RowModels",
    "paper_models",
    "published",
    "take_regime",
    "training_images",
    "varied_model",
]

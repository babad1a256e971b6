"""Learn the symmetry from the data: branches with different symmetries, and a gate that picks one.

The paper (in its section on automatic symmetry discovery) proposes parallel networks of which training
retains the relevant one. Here each branch is a separate network and learns alone: in training, an image goes
through one branch, drawn at random. Some images, the same in every epoch, are held out from all branches. The
gate evaluates the branches on them.

Input and output are images and logits, so any training loop for classifiers works. The labels of held-out
images reach the gate through the loss: for them the network abstains, that is, all logits are (nearly) 0.
There the gradient of the cross-entropy is 1/K - 1 for the true class and 1/K for all others, times a positive
factor, whatever the class weights or the label smoothing. (With both, the true class still has the lowest
gradient if the largest weight is less than K (1 - s) / s times the smallest, with K classes and smoothing s.)
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor, nn

from besselnet.checks import check_count, check_number
from besselnet.models._besselnet import besselnet
from besselnet.models._registry import note_classes, register_model
from besselnet.models.template import TemplateNetwork
from besselnet.nn import Field, evaluating

__all__ = ["BRANCHES", "GateReport", "GatedNetwork", "SymmetryGate", "gated"]

# The last answers that are remembered.
WINDOW = 1024
DRAWINGS = 500
# One standard error above the lowest cost, a branch is the better one in about this share of drawings.
LEAST_WEIGHT = 1 / 6


@dataclass(frozen=True)
class GateReport:
    """Errors, prices and weights of the branches, see `SymmetryGate`; ``print`` shows a table.

    Attributes:
        names, prices, weights: of the branches.
        chosen: the branch that the gate selects.
        images: number of different held-out images behind the choice.
        errors: error rate of each branch on them; None before the first image.
    """

    names: tuple[str, ...]
    chosen: str
    images: int
    errors: tuple[float | None, ...]
    prices: tuple[float, ...]
    weights: tuple[float, ...]

    def __str__(self) -> str:
        lines = [f"{'branch':<10}{'error':>8}{'price':>8}{'weight':>8}"]
        for name, error, price, weight in zip(self.names, self.errors, self.prices, self.weights):
            mark = "  chosen" if name == self.chosen else ""
            shown = "-" if error is None else f"{error:.1%}"
            lines.append(f"{name:<10}{shown:>8}{price:>8.1%}{weight:>8.2f}{mark}")
        return "\n".join([*lines, f"evaluated on {self.images} held-out images"])


class SymmetryGate(nn.Module):
    """Record the errors of each branch on held-out images, and choose a branch.

    On images that the branches were trained on, the branch with the fewest constraints wins. On other images,
    it wins only if the constraints of the others are wrong. If they are right, all branches are about equally
    good, and chance would decide. So a branch pays for the symmetries that it gives up:

        cost = error rate on held-out images + price

    If the images cannot decide, the larger symmetry wins. The held-out images are resampled many times
    (bootstrap). The *weight* of a branch is the fraction of resamples in which its cost is the lowest. Of the
    branches with a weight of at least 1/6, the gate selects the one with the lowest price. For two branches,
    this is the one-standard-error rule of Breiman et al., *Classification and Regression Trees* (1984).

    The gate uses the last quarter of the predictions that it has observed, at most 1024, because the branches
    improve during training. Predictions for the same image are averaged. Before the first observation, it
    selects the branch with the lowest price. Prices are fractions of the images, >= 0.
    """

    wrong: Tensor
    keys: Tensor
    seen: Tensor

    def __init__(self, names: Sequence[str], prices: Sequence[float]) -> None:
        super().__init__()
        self.names = tuple(names)
        self.prices = tuple(prices)
        self.register_buffer("wrong", torch.zeros(WINDOW, len(names), dtype=torch.bool))
        self.register_buffer("keys", torch.zeros(WINDOW, dtype=torch.int64))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def observe(self, keys: Tensor, wrong: Tensor) -> None:
        """Record which branches were wrong, (images, branches), for images with these keys, (images,)."""
        count = len(keys)
        places = (torch.arange(count, device=self.keys.device) + self.seen)[-WINDOW:] % WINDOW
        self.keys[places] = keys[-WINDOW:]
        self.wrong[places] = wrong[-WINDOW:]
        self.seen += count

    def errors(self) -> Tensor:
        """Return the error rate of each branch on each image that counts, (images, branches)."""
        count = min(WINDOW, (int(self.seen) + 3) // 4)
        places = (torch.arange(count, device=self.keys.device) + (self.seen - count)) % WINDOW
        _, image, answers = self.keys[places].unique(return_inverse=True, return_counts=True)
        total = torch.zeros(len(answers), len(self.names), device=self.keys.device)
        total.index_add_(0, image, self.wrong[places].float())
        return total / answers[:, None]

    def weights(self) -> Tensor:
        """Return the fraction of bootstrap resamples in which each branch has the lowest cost."""
        errors = self.errors().cpu()
        draws = _draws()[:, : len(errors)]
        mean = draws @ errors / draws.sum(1, keepdim=True).clamp(min=1)
        best = (mean + torch.tensor(self.prices)).argmin(1)
        return best.bincount(minlength=len(self.names)) / DRAWINGS

    def choice(self) -> int:
        """Return the index of the chosen branch."""
        weights = self.weights().tolist()
        ranks = [(w < LEAST_WEIGHT, price, -w) for w, price in zip(weights, self.prices)]
        return ranks.index(min(ranks))

    def extra_repr(self) -> str:
        return f"names={self.names}, prices={self.prices}"

    def report(self) -> GateReport:
        """Return the errors, prices and weights of all branches."""
        errors = self.errors()
        return GateReport(
            names=self.names,
            chosen=self.names[self.choice()],
            images=len(errors),
            errors=tuple(errors.mean(0).tolist() if len(errors) else [None] * len(self.names)),
            prices=self.prices,
            weights=tuple(self.weights().tolist()),
        )


@lru_cache(maxsize=1)
def _draws() -> Tensor:
    """How often each image is drawn in each drawing: the Poisson form of the bootstrap."""
    rates = torch.ones(DRAWINGS, WINDOW, device="cpu")
    return torch.poisson(rates, generator=torch.Generator().manual_seed(0))


def image_keys(images: Tensor) -> Tensor:
    """A number for each image (N, ...), from 0 to 2^31 - 1: a hash of its pixels, the same in every epoch and
    process. An augmented copy has another one.
    """
    return _hashed(images.detach().float().flatten(1).contiguous().view(torch.int32).long())


def index_keys(indices: Tensor) -> Tensor:
    """The same for numbers of images in a data set, (N,): what is done to the pixels does not matter."""
    return _hashed(torch.stack([indices, indices**2], 1))


def _hashed(numbers: Tensor) -> Tensor:
    """Integers (N, M) to one key for each row."""
    generator = torch.Generator().manual_seed(0)
    factors = torch.randint(-(2**62), 2**62, numbers.shape[1:], generator=generator)
    # Sums of products modulo 2^64; the upper bits depend on all bits of all numbers.
    return (numbers * factors.to(numbers.device)).sum(1) >> 32 & 0x7FFFFFFF


def held_out_share(keys: Tensor, share: float) -> Tensor:
    """Which keys belong to the given share of all images."""
    return keys < share * 2**31


# How many steps a branch is from the largest symmetry. Turns and mirror images are exact and cost nothing:
# a branch that gives one of them up pays for it. Scales are kept approximately and take three times the
# arithmetic, so it is taking them in that has to pay.
BRANCHES = {"O(2)": 0, "O(2)+": 1, "SO(2)": 1, "SO(2)+": 2, "plain": 2}
_SCALES = (-2, 0, 2)
# The logits of held-out images: enough to say which class is the largest, too small to be a prediction.
_WHISPER = 1e-3


class GatedNetwork(nn.Module):
    """Network of parallel branches, of which the gate selects one.

    In training, each image that is not held out goes through one branch. So with B branches, each branch
    needs B times as many epochs. An epoch costs as much as that of an average branch, plus the held-out
    images. The training loss contains log(number of classes) for each held-out image. In eval mode, only the
    chosen branch is computed.

    If the training loop passes the indices of the images in the data set to `begin_batch`, as
    `besselnet.train.fit` does, these determine which images are held out. Other loops must not augment the
    images: then their pixels determine it, and an augmented copy of a held-out image counts as another image,
    from which branches may learn.

    Args:
        branches: networks by name, each a `TemplateNetwork`.
        prices: price of each branch, see `SymmetryGate`.
        held_out: fraction of the images that the gate evaluates on; 0 uses only `judge`.
    """

    def __init__(
        self, branches: dict[str, nn.Module], prices: Sequence[float], held_out: float
    ) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches.values())
        self.gate = SymmetryGate(tuple(branches), prices)
        self.held_out = held_out
        self._indices: Tensor | None = None

    def extra_repr(self) -> str:
        return f"held_out={self.held_out}"

    @property
    def _branch(self) -> TemplateNetwork:
        """The chosen branch."""
        return self.branches[self.gate.choice()]  # type: ignore[return-value]

    @property
    def num_features(self) -> int:
        """Number of channels of the feature maps of the chosen branch."""
        return self._branch.num_features

    def get_classifier(self) -> nn.Module:
        """Return the linear layer of the chosen branch."""
        return self._branch.get_classifier()

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the linear layers of all branches and reset the gate.

        `num_classes=0` is not possible, because the gate compares predicted classes. For features, use
        `pruned()`.
        """
        _check_classes(num_classes)
        for branch in self.branches:
            branch.reset_classifier(num_classes)  # type: ignore[operator]
        self.gate.seen.zero_()
        note_classes(self, num_classes)

    def begin_batch(self, indices: Tensor) -> None:
        """Pass the data set indices (N,) of the next training batch; valid for one call."""
        self._indices = indices

    def chosen(self) -> str:
        """Name of the chosen branch."""
        return self.gate.names[self.gate.choice()]

    def gate_report(self) -> GateReport:
        """Return the error rate of each branch on held-out images, and its weight in the choice."""
        return self.gate.report()

    def pruned(self) -> nn.Module:
        """Return a copy of the chosen branch: a single network with the same logits."""
        return copy.deepcopy(self._branch)

    def judge(self, images: Tensor, labels: Tensor) -> None:
        """Evaluate the branches on labelled images that none was trained on, such as a validation set."""
        wrong = self._answers(images).argmax(2) != labels
        self.gate.observe(image_keys(images), wrong.T)

    def forward_features(self, x: Tensor) -> Tensor:
        """Map images (N, in_channels, H, W) to the feature maps of the chosen branch."""
        return self._branch.forward_features(x)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (N, in_channels, H, W) to logits (N, num_classes)."""
        if not self.training or not len(x):
            logits: Tensor = self._branch(x)
            return logits
        keys = self._keys(x)
        held_out = held_out_share(keys, self.held_out)
        learned = (~held_out).nonzero().squeeze(1)
        # Batch normalisation needs two images: in a small batch some branches rest.
        busy = min(len(self.branches), max(1, len(learned) // 2))
        first = int(torch.randint(len(self.branches), ()))
        rows, answers, idle = [], [], []
        for number in range(len(self.branches)):
            branch = self.branches[(first + number) % len(self.branches)]
            mine = learned[number::busy] if number < busy else learned[:0]
            if len(mine):
                rows.append(mine)
                answers.append(branch(x[mine]))
            else:
                idle.append(branch)
        if held_out.any():
            rows.append(held_out.nonzero().squeeze(1))
            answers.append(self._abstain(x[held_out], keys[held_out]))
        # Processes that train together wait for a gradient of every parameter.
        nothing = [parameter.sum() * 0 for branch in idle for parameter in branch.parameters()]
        return sum(nothing, torch.cat(answers)[torch.cat(rows).argsort()])

    def _keys(self, x: Tensor) -> Tensor:
        """Keys of the images, by their numbers if they were told."""
        indices, self._indices = self._indices, None
        if indices is None:
            return image_keys(x)
        if indices.shape != (len(x),):
            raise ValueError(
                f"begin_batch got indices of shape {tuple(indices.shape)}: must be ({len(x)},)"
            )
        return index_keys(indices.to(x.device, torch.int64))

    def _abstain(self, images: Tensor, keys: Tensor) -> Tensor:
        """Logits of nearly 0, whose gradient tells the gate the labels."""
        answers = self._answers(images)
        silence = torch.zeros_like(answers[0]).requires_grad_()
        classes = answers.argmax(2)
        # The loss wants more of the right class and less of all others.
        silence.register_hook(lambda grad: self.gate.observe(keys, (classes != grad.argmin(1)).T))
        return silence + _WHISPER * answers[self.gate.choice()].log_softmax(1)

    @torch.no_grad()
    def _answers(self, images: Tensor) -> Tensor:
        """Logits of all branches in evaluation mode, (branches, N, num_classes)."""
        with evaluating(self.branches):
            return torch.stack([branch(images) for branch in self.branches])


@register_model(
    "besselnet_gated",
    symmetry="learned from the data",
    exactness="that of the chosen branch",
    sizes="at least 8",
    smallest_size=8,
    default_size=64,
    augmentable=False,
)
def gated(
    *,
    in_channels: int,
    num_classes: int,
    image_size: int,
    branches: Sequence[str] = tuple(BRANCHES),
    width: float = 1.0,
    field: Field | Literal["none"] = "disc",
    kernel_size: int = 7,
    low_pass: float = 0.8,
    held_out: float = 0.2,
    price: float = 0.02,
) -> GatedNetwork:
    """besselnet_small with each symmetry and with none, in parallel: the data select one of them.

    Args:
        branches: some of "O(2)", "O(2)+", "SO(2)", "SO(2)+", "plain".
        width, field, kernel_size, low_pass: as in `besselnet_small`. The plain branch has half the width,
            which gives it as many parameters, and no low-pass filter, because it has no symmetry to preserve.
        held_out: fraction of the training images that the gate evaluates on; no branch learns from them.
        price: required gain in accuracy on the held-out images, for each symmetry that a branch gives up
            (and for several scales).
    """
    unknown = [name for name in branches if name not in BRANCHES]
    if isinstance(branches, str) or not branches or unknown or len(set(branches)) < len(branches):
        raise ValueError(
            f"branches={branches!r}: must be one or more of {', '.join(BRANCHES)}, each once"
        )
    check_number("held_out", held_out, least=0, below=1)
    check_number("price", price, least=0)
    _check_classes(num_classes)
    networks: dict[str, nn.Module] = {}
    for name in branches:
        plain = name == "plain"
        networks[name] = besselnet(
            in_channels=in_channels,
            num_classes=num_classes,
            image_size=image_size,
            width=width / 2 if plain else width,
            field=field,
            symmetry="none" if plain else name.removesuffix("+"),
            scales=_SCALES if name.endswith("+") else None,
            kernel_size=kernel_size,
            low_pass=0.0 if plain else low_pass,
        )
    return GatedNetwork(networks, [price * BRANCHES[name] for name in branches], held_out)


def _check_classes(num_classes: int) -> None:
    if num_classes == 0:
        raise ValueError(
            "num_classes=0: must be >= 1 because the gate compares predicted classes; for features use "
            "model.pruned() or 'besselnet_small'"
        )
    check_count("num_classes", num_classes)

"""Let the data choose the symmetry: branches with different symmetries, and a gate that picks one.

The paper's discussion (its section on automatic symmetry discovery) proposes networks in parallel of which
training retains the relevant one. Here each branch is a network of its own and learns alone: in training
an image goes through one branch, drawn at random. Some images, the same in every epoch, are held out from
all branches, and on these the gate judges them.

Nothing but images goes in, nothing but logits comes out, so any loop that trains a classifier trains this
one. The labels of held-out images reach the gate through the loss: for them the network abstains, that is,
all logits are (nearly) 0. There the gradient of the cross-entropy is 1/K - 1 for the right class and 1/K
for all others, times a positive factor, whatever the class weights or the label smoothing. (With both, the
right class still has the lowest gradient while the largest weight is less than K (1 - s) / s times the
smallest, with K classes and the smoothing s.)
"""

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from besselnet.models._gate import GateReport, SymmetryGate, held_out_share, image_keys
from besselnet.models._recommended import recommended
from besselnet.models._registry import register_model
from besselnet.nn import BesselConv2d, evaluating

__all__ = ["BRANCHES", "GatedNetwork", "gated"]

# How many steps a branch is from the largest symmetry. Turns and mirror images are exact and cost nothing:
# a branch that gives one of them up pays for it. Scales are kept approximately and take three times the
# arithmetic, so it is taking them in that has to pay.
BRANCHES = {"O(2)": 0, "O(2)+": 1, "SO(2)": 1, "SO(2)+": 2, "plain": 2}
_SCALES = (-2, 0, 2)
# The logits of held-out images: enough to say which class is the largest, too small to be a prediction.
_WHISPER = 1e-3


class GatedNetwork(nn.Module):
    """Branches of which one answers.

    In training an image that is not held out goes through one branch, so each branch needs as many times
    more epochs as there are branches; an epoch costs as much as one of an average branch, and the held-out
    images. The loss that is shown in training contains log(number of classes) for each of these.

    In evaluation the chosen branch alone is computed.

    Args:
        branches: networks by name, each with `forward_features`.
        prices: of each branch, see `SymmetryGate`.
        held_out: share of the images that the gate judges by; 0 leaves it to `judge`.
    """

    def __init__(
        self, branches: dict[str, nn.Module], prices: Sequence[float], held_out: float
    ) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches.values())
        self.gate = SymmetryGate(tuple(branches), prices)
        self.held_out = held_out

    def chosen(self) -> str:
        """The name of the branch that answers."""
        return self.gate.names[self.gate.choice()]

    def gate_report(self) -> GateReport:
        """How often each branch is wrong on held-out images, and the weight of each in the choice."""
        return self.gate.report()

    def pruned(self) -> nn.Module:
        """A copy of the chosen branch alone: a plain network with the same logits."""
        return copy.deepcopy(self.branches[self.gate.choice()])

    def judge(self, images: Tensor, labels: Tensor) -> None:
        """Show the gate labelled images that no branch has learned from, such as a validation set."""
        self._observe(image_keys(images), self._answers(images).argmax(2), labels)

    def forward_features(self, x: Tensor) -> Tensor:
        """Images (N, in_channels, H, W) to the feature maps of the chosen branch."""
        maps: Tensor = self.branches[self.gate.choice()].forward_features(x)  # type: ignore[operator]
        return maps

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, in_channels, H, W) to logits (N, num_classes)."""
        if not self.training:
            logits: Tensor = self.branches[self.gate.choice()](x)
            return logits
        keys = image_keys(x)
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

    def _abstain(self, images: Tensor, keys: Tensor) -> Tensor:
        """Logits of nearly 0, whose gradient tells the gate the labels."""
        answers = self._answers(images)
        silence = torch.zeros_like(answers[0]).requires_grad_()
        # The loss wants more of the right class and less of all others.
        silence.register_hook(
            lambda gradient: self._observe(keys, answers.argmax(2), gradient.argmin(1))
        )
        return silence + _WHISPER * answers[self.gate.choice()].log_softmax(1)

    def _observe(self, keys: Tensor, classes: Tensor, labels: Tensor) -> None:
        self.gate.observe(keys, (classes != labels).T)

    @torch.no_grad()
    def _answers(self, images: Tensor) -> Tensor:
        """Logits of all branches in evaluation mode, (branches, N, num_classes)."""
        with evaluating(self.branches):
            return torch.stack([branch(images) for branch in self.branches])


@register_model(
    "besselnet_gated",
    symmetry="chosen by the data",
    exactness="that of the chosen branch",
    sizes="from 8 pixels",
    smallest_size=8,
)
def gated(
    *,
    in_channels: int,
    num_classes: int,
    image_size: int,
    branches: Sequence[str] = tuple(BRANCHES),
    width: float = 1.7,
    kernel_size: int = 7,
    low_pass: float = 0.8,
    held_out: float = 0.2,
    price: float = 0.02,
) -> GatedNetwork:
    """Our own with each symmetry and with none, in parallel; the data choose one of them.

    Args:
        in_channels: channels of the images.
        num_classes: length of the logits.
        image_size: side of the images in pixels.
        branches: some of "O(2)", "O(2)+", "SO(2)", "SO(2)+", "plain".
        width, kernel_size, low_pass: as in `besselnet_small`. The plain branch has half the width, which
            gives it as many parameters, and no low-pass: it has no symmetry to keep.
        held_out: share of the training images that the gate judges by; no branch learns from them.
        price: by how much a branch must be right more often, as a share of the held-out images, for each
            symmetry that it gives up (and for taking in scales).
    """
    unknown = [name for name in branches if name not in BRANCHES]
    if isinstance(branches, str) or not branches or unknown or len(set(branches)) < len(branches):
        raise ValueError(
            f"branches={branches!r}: allowed are one or more of {', '.join(BRANCHES)}, each once"
        )
    if not isinstance(held_out, int | float) or not 0 <= held_out < 1:
        raise ValueError(f"held_out={held_out!r}: allowed is a number >= 0 and < 1")
    if not isinstance(price, int | float) or not 0 <= price < float("inf"):
        raise ValueError(f"price={price!r}: allowed is a finite number >= 0")

    def branch(name: str) -> nn.Module:
        plain = name == "plain"
        network = recommended(
            in_channels=in_channels,
            num_classes=num_classes,
            image_size=image_size,
            width=width / 2 if plain else width,
            symmetry="O(2)" if name.startswith("O(2)") else "SO(2)",
            kernel_size=kernel_size,
            low_pass=0.0 if plain else low_pass,
        )
        if plain:
            _exchange(network, _plain_conv)
        elif name.endswith("+"):
            _exchange(network, _multi_scale_conv)
        return network

    return GatedNetwork(
        {name: branch(name) for name in branches},
        [price * BRANCHES[name] for name in branches],
        held_out,
    )


def _exchange(network: nn.Module, make: Callable[[BesselConv2d], nn.Module]) -> None:
    for name, layer in list(network.named_modules()):
        if isinstance(layer, BesselConv2d):
            network.set_submodule(name, make(layer))


def _plain_conv(layer: BesselConv2d) -> nn.Module:
    return nn.Conv2d(
        layer.in_channels,
        layer.out_channels,
        layer.kernel_size,
        padding=layer.padding,
        bias=layer.bias is not None,
    )


def _multi_scale_conv(layer: BesselConv2d) -> nn.Module:
    return BesselConv2d(
        layer.in_channels,
        layer.out_channels,
        layer.kernel_size,
        padding=layer.padding,
        bias=layer.bias is not None,
        symmetry=layer.symmetry,
        cutoff=layer.cutoff,
        scales=_SCALES,
        response=layer.response,
        sampling=layer.sampling,
        mode_norms=layer.spec.mode_norms,
        algorithm=layer.algorithm,
    )

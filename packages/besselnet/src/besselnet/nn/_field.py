"""``FieldOfView``: what a network sees of an image, the same for every rotation of it."""

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from besselnet.checks import check_choice, check_number
from besselnet.functional import disc_weights

Field = Literal["disc", "square"]
FIELDS: tuple[str, ...] = get_args(Field)


class FieldOfView(nn.Module):
    """Make what lies outside the view zero: for the image, and the same for every rotated copy.

    A photograph that fills its frame loses its corners when it is rotated, and other pixels come in. And
    the zeros of a padding draw a square frame around every image whose colours are not zero.

    "disc" subtracts the mean colour of the inscribed disc and fades to zero towards its rim. "square", for
    objects on a uniform ground, subtracts the mean colour outside that disc, which is the ground, and cuts
    nothing off. Both are taken from each image alone: the layer has no parameters, and a constant added to
    a channel changes nothing.

    Properties (each has a test of its name):
        *corners do not matter* ("disc"): what lies outside the disc changes nothing; *constants do not
        matter*; *quarter turns exact*.

    Args:
        field: "disc" or "square".
        fade: pixels over which the disc fades.

    Shape:
        (N, C, H, W) -> (N, C, H, W). The disc is that of the shorter side.

    Example:
        >>> abs(float(FieldOfView()(torch.rand(1, 3, 32, 32))[0, 0, 0, 0]))
        0.0
    """

    def __init__(self, field: Field = "disc", fade: float = 2.0) -> None:
        super().__init__()
        check_choice("field", field, FIELDS)
        self.field: Field = field
        self.fade = check_number("fade", fade, least=0)

    def forward(self, input: Tensor) -> Tensor:
        disc = disc_weights(torch.ones_like(input[:1, :1]).float(), self.fade).to(input)
        looked_at = disc if self.field == "disc" else 1 - disc
        # Images so small that the disc leaves nothing over have no corners to tell the ground.
        area = looked_at.sum().clamp_min(1e-6)
        colour = (input * looked_at).sum((-2, -1), keepdim=True) / area
        seen = input - colour
        return seen * disc if self.field == "disc" else seen

    def extra_repr(self) -> str:
        return f"field={self.field!r}, fade={self.fade:g}"

"""``FieldOfView``: limit the view of a network to what every rotation of an image shows."""

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from besselnet.checks import check_choice, check_number
from besselnet.functional import disc_weights

Field = Literal["disc", "square"]
FIELDS: tuple[str, ...] = get_args(Field)


class FieldOfView(nn.Module):
    """Set the background of an image to zero, in the same way for every rotated copy.

    Two effects of the square frame break equivariance. A photograph that fills its frame loses its corners
    when it is rotated, and other pixels replace them. Zero padding draws a square edge around every image
    whose border is not zero.

    "disc" subtracts the mean colour of the inscribed disc and fades to zero towards its rim. "square" is for
    objects on a uniform background: it subtracts the mean colour outside the disc, which is the background,
    and crops nothing. Both use the statistics of each image alone. The layer has no parameters, and adding a
    constant to a channel does not change the output.

    Properties (each has a test of the same name):
        *corners do not matter* ("disc"): pixels outside the disc have no effect; *constants do not matter*;
        *quarter turns exact*.

    Args:
        field: "disc" or "square".
        fade: width in pixels over which the disc fades.

    Shape:
        (N, C, H, W) -> (N, C, H, W). The diameter of the disc is the shorter side.

    Example:
        >>> float(FieldOfView()(torch.rand(1, 3, 32, 32))[0, 0, 0, 0].abs())
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

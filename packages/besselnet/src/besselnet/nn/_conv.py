"""``BesselConv2d``: a rotation-equivariant drop-in replacement for ``nn.Conv2d``."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from besselnet.checks import check_choice, check_count, check_padding, check_pair
from besselnet.functional import (
    ALGORITHMS,
    PADDING_MODES,
    RESPONSES,
    SCALE_POOLS,
    Algorithm,
    BasisSpec,
    Response,
    ScalePool,
    bessel_response,
)

# Gain of the power response at the start, see BesselConv2d.reset_parameters.
POWER_GAIN = 8.0


class BesselConv2d(nn.Module):
    r"""Rotation-equivariant 2D convolution: if the image is rotated, the feature maps rotate with it.

    A drop-in replacement for ``nn.Conv2d``: the first eleven arguments have the same names, order and
    meaning. The layer computes :func:`besselnet.functional.bessel_conv2d`. For each output channel,
    this is the (square root of the) energy of the local image, filtered by the learned weights and
    summed over angular orders.

    Properties (each has a test of the same name):
        *quarter turns exact*: rotating the input by 90 degrees rotates the output, up to rounding, if the
        stride fits the size; *any angle*: other rotations agree as well as the pixel grid allows, see
        ``besselnet.testing``; *reflections*: exact for ``symmetry="O(2)"``, distinguished by ``"SO(2)"``.

    Args:
        in_channels, out_channels: number of channels.
        kernel_size: side k of the kernel, odd or even. The layer sees the inscribed disc.
        stride, padding, dilation, groups, bias, padding_mode, device, dtype: as in ``nn.Conv2d``.
        symmetry: "SO(2)" is equivariant to rotations, "O(2)" to rotations and reflections.
        cutoff: frequency limit of the kernels: "strong", "soft" or a fraction of pi k / 2, at most 4.
        scales: size offsets such as ``(-2, 0, 2)``, for invariance to small changes of scale.
        scale_pool: how the strongest scale is chosen: per feature "map", per "pixel" or per "image".
        response: "signed" (order 0 keeps its sign), "amplitude" or "power" (the paper). The first two are
            homogeneous of degree one in the input: use any normalisation, and ReLU.
        sampling: interpolation between pixels: "cubic", "bilinear" (the most equivariant) or "point" (the
            paper).
        algorithm: "auto" picks the faster of "factored" and "direct". All give the same result.

    Shape:
        input (N, C, H, W) or (C, H, W); output (N, O, H', W') or (O, H', W'), as for ``nn.Conv2d``.

    Attributes:
        weight: (out_channels, in_channels / groups, number of real coefficients), learned.
        bias: (out_channels,), learned, or None.

    Example:
        >>> layer = BesselConv2d(3, 16, 7, padding=3)
        >>> layer(torch.rand(2, 3, 32, 32)).shape
        torch.Size([2, 16, 32, 32])
    """

    # Version 1 had all cosines before all sines.
    _version = 2
    filter_index: Tensor
    filter_signs: Tensor

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | str = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        symmetry: str = "SO(2)",
        cutoff: str | float = "strong",
        scales: Sequence[int] | None = None,
        scale_pool: ScalePool = "map",
        response: Response = "signed",
        sampling: str = "cubic",
        algorithm: Algorithm = "auto",
    ) -> None:
        super().__init__()
        self.in_channels = check_count("in_channels", in_channels)
        self.out_channels = check_count("out_channels", out_channels)
        self.groups = check_count("groups", groups)
        for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if channels % groups:
                raise ValueError(f"{name}={channels}: must be a multiple of groups={groups}")
        self.spec = BasisSpec.checked(
            kernel_size,
            symmetry=symmetry,
            cutoff=cutoff,
            sampling=sampling,
            scales=scales,
        )
        self.kernel_size = (self.spec.kernel_size, self.spec.kernel_size)
        self.stride = check_pair("stride", stride, 1)
        self.dilation = check_pair("dilation", dilation, 1)
        check_padding(padding, self.spec.kernel_size, self.stride, self.dilation)
        self.padding = padding if isinstance(padding, str) else check_pair("padding", padding, 0)
        check_choice("padding_mode", padding_mode, PADDING_MODES)
        check_choice("scale_pool", scale_pool, SCALE_POOLS)
        check_choice("response", response, RESPONSES)
        check_choice("algorithm", algorithm, ALGORITHMS)
        self.padding_mode = padding_mode
        self.cutoff = cutoff
        self.scale_pool: ScalePool = scale_pool
        self.response: Response = response
        self.algorithm: Algorithm = algorithm

        shape = (out_channels, in_channels // groups, self.spec.num_weights)
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        if bias:
            self.bias = nn.Parameter(torch.empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self._set_tables()
        self.reset_parameters()

    @property
    def symmetry(self) -> str:
        return self.spec.symmetry

    @property
    def sampling(self) -> str:
        return self.spec.sampling

    def reset_parameters(self) -> None:
        r"""Initialise the weights so that activations neither vanish nor explode in deep networks.

        Let Re and Im of :math:`\kappa` be independent with variance :math:`\sigma^2`. Orders v and -v
        carry the same energy, so by Parseval the expected power is

        .. math:: E[a] = \sigma^2 \sum_c \sum_{\nu \in Z, j} |\varphi_{\nu,j}|^2
                  \le \sigma^2 \sum_c \int_{disc} \Psi_c^2 = \sigma^2 \pi \, C_{in} \, \overline{\Psi^2}

        with equality for images that the modes resolve.

        *Amplitude*: :math:`\sigma^2 = 1 / (\pi C_{in})` makes the expected square of the response the
        local mean square of the input: the scale is preserved at any depth. *Signed*: order 0 has a
        random sign, so the expected square is the same sum.

        *Power*: the response has degree two. Without an activation, :math:`x \mapsto g x^2` preserves no
        scale, whatever the gain g. A power layer needs a bounded activation or a normalisation after
        it, as in the paper. Through softsign, :math:`x \mapsto g x^2 / (1 + g x^2)`, a signal
        survives if and only if :math:`g > 4`; with g = 8, everything above 0.15 converges to 0.85. So
        :math:`\sigma^2 = 8 / (\pi C_{in})`; a normalisation undoes g.

        The bias starts at zero.
        """
        gain = POWER_GAIN if self.response == "power" else 1.0
        std = math.sqrt(gain / (math.pi * self.in_channels / self.groups))
        nn.init.normal_(self.weight, 0.0, std)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def _set_tables(self) -> None:
        dtype, device = self.weight.dtype, self.weight.device
        for i, table in enumerate(self.spec.tables(dtype=dtype, device=device)):
            self.register_buffer(f"table{i}", table, persistent=False)
        index, signs = self.spec.expansion(dtype=dtype, device=device)
        self.register_buffer("filter_index", index, persistent=False)
        self.register_buffer("filter_signs", signs, persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "BesselConv2d":
        # A change of dtype must not carry the rounding of the old one: build the tables anew.
        super()._apply(fn, recurse)
        self._set_tables()
        return self

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, *args: Any
    ) -> None:
        if local_metadata.get("version") == 1 and f"{prefix}weight" in state_dict:
            raise ValueError(
                f"{prefix}weight was saved by besselnet 0.1.0, which orders the coefficients differently: "
                "load it with that version"
            )
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)

    @property
    def tables(self) -> list[Tensor]:
        """Return the filter bank of each scale."""
        return [getattr(self, f"table{i}") for i in range(len(self.spec.scales))]

    @torch.no_grad()
    def filters(self) -> Tensor:
        """Return the learned kernels of the base size, upright, as images (O, C / groups, k, k)."""
        (bank,) = replace(self.spec, scales=(0,)).tables(
            dtype=self.weight.dtype, device=self.weight.device
        )
        return torch.einsum("oin,nyx->oiyx", self.weight, bank)

    def forward(self, input: Tensor) -> Tensor:
        return bessel_response(
            input,
            self.weight,
            self.bias,
            self.stride,
            check_padding(self.padding, self.spec.kernel_size, self.stride, self.dilation),
            self.dilation,
            self.groups,
            spec=self.spec,
            tables=self.tables,
            padding_mode=self.padding_mode,
            response=self.response,
            scale_pool=self.scale_pool,
            algorithm=self.algorithm,
            expansion=(self.filter_index, self.filter_signs),
        )

    def extra_repr(self) -> str:
        defaults: dict[str, Any] = {
            "stride": (1, 1),
            "padding": (0, 0),
            "dilation": (1, 1),
            "groups": 1,
            "padding_mode": "zeros",
        }
        changed = [f"{k}={getattr(self, k)}" for k, v in defaults.items() if getattr(self, k) != v]
        parts = [
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}",
            *changed,
            *([] if self.bias is not None else ["bias=False"]),
            f"symmetry={self.symmetry}, cutoff={self.cutoff}, response={self.response}",
        ]
        if self.spec.scales != (0,):
            parts.append(f"scales={self.spec.scales}, scale_pool={self.scale_pool}")
        if self.sampling != "cubic":
            parts.append(f"sampling={self.sampling}")
        if self.algorithm != "auto":
            parts.append(f"algorithm={self.algorithm}")
        return ", ".join(parts)

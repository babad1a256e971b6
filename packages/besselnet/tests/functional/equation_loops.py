"""The paper's equations as loops: slow, plain, and written without the code they check.

Only the taps T_{v,j} come from the package, from its core, which has tests of its own.
"""

import math

import numpy as np

from besselnet.core import kernel_modes, sampled_basis

# Every algorithm that must give the numbers of the loops.
ALGORITHMS = ["direct", "factored"]


def read_pixel(channel, row, column, padding_mode):
    """A pixel of a (H, W) image; outside, what the padding mode says."""
    inside = []
    for index, size in zip((row, column), channel.shape):
        if padding_mode == "replicate":
            index = min(max(index, 0), size - 1)
        elif padding_mode == "circular":
            index = index % size
        elif padding_mode == "reflect":
            index = abs(index)
            index = size - 1 - abs(size - 1 - index)
        if not 0 <= index < size:
            return 0.0
        inside.append(index)
    return channel[inside[0], inside[1]]


def complex_weights(weight, modes):
    """kappa[o][c][(v, j)] from the layout of the layer's weights."""
    kappa = np.empty((*weight.shape[:2], len(modes)), dtype=complex)
    start = 0
    for v in range(modes.num_orders):
        of_order = [i for i, mode in enumerate(modes.modes) if mode.order == v]
        for place, i in enumerate(of_order):
            kappa[..., i] = weight[..., start + place]
            if v > 0:
                kappa[..., i] += 1j * weight[..., start + len(of_order) + place]
        start += len(of_order) * (2 if v else 1)
    assert start == weight.shape[2]
    return kappa


def powers_at(phi, kappa, modes, symmetry):
    """The terms of Equations 5.6 and 5.7 at one pixel, one for each order v.

    phi and kappa are (channels, modes).
    """
    terms = []
    for v in range(modes.num_orders):
        whole = real = imaginary = 0j
        for c in range(len(phi)):
            for i, mode in enumerate(modes.modes):
                if mode.order == v:
                    whole += kappa[c, i].conjugate() * phi[c, i]
                    real += kappa[c, i].real * phi[c, i]
                    imaginary += kappa[c, i].imag * phi[c, i]
        if symmetry == "SO(2)":
            terms.append(abs(whole) ** 2)
        else:
            terms.append(abs(real) ** 2 + abs(imaginary) ** 2)
    return terms


def output_geometry(size, kernel_size, stride, padding, dilation):
    """How many outputs there are along an axis, and where in the image the first kernel is centred."""
    reach = dilation * (kernel_size - 1)
    if padding == "same":
        before, after = reach // 2, reach - reach // 2
    else:
        before = after = 0 if padding == "valid" else padding
    count = (size + before + after - reach - 1) // stride + 1
    return count, reach / 2 - before


def one_scale(image, kappa, taps, modes, options):
    """Response of one image (C, H, W) for kernels of one size, centred where the base size's are."""
    stride, padding, dilation = options["stride"], options["padding"], options["dilation"]
    pads = (padding, padding) if isinstance(padding, str) else padding
    rows, columns = (
        output_geometry(image.shape[1 + a], options["kernel_size"], stride[a], pads[a], dilation[a])
        for a in (0, 1)
    )
    size = taps.shape[-1]
    out_channels, in_group = kappa.shape[:2]
    out_group = out_channels // options["groups"]
    output = np.empty((out_channels, rows[0], columns[0]))
    for y in range(rows[0]):
        for x in range(columns[0]):
            phi = np.zeros((len(image), len(modes)), dtype=complex)
            for r in range(size):
                for s in range(size):
                    row = rows[1] + y * stride[0] + dilation[0] * (r - (size - 1) / 2)
                    column = columns[1] + x * stride[1] + dilation[1] * (s - (size - 1) / 2)
                    assert row == int(row)
                    assert column == int(column)
                    for c in range(len(image)):
                        pixel = read_pixel(image[c], int(row), int(column), options["padding_mode"])
                        for i in range(len(modes)):
                            phi[c, i] += taps[i, r, s] * pixel
            for o in range(out_channels):
                first = o // out_group * in_group
                terms = powers_at(
                    phi[first : first + in_group], kappa[o], modes, options["symmetry"]
                )
                if options["response"] == "signed":
                    zero = sum(
                        (kappa[o, c, i].real * phi[first + c, i].real)
                        for c in range(in_group)
                        for i, mode in enumerate(modes.modes)
                        if mode.order == 0
                    )
                    output[o, y, x] = zero + math.sqrt(sum(terms[1:]))
                elif options["response"] == "amplitude":
                    output[o, y, x] = math.sqrt(sum(terms))
                else:
                    output[o, y, x] = sum(terms)
    return output


def keep_strongest(responses, pool):
    """Of (O, H, W) responses at several scales, the strongest per pixel, map or image."""
    output = np.empty_like(responses[0])
    for o in range(len(output)):
        if pool == "image":
            output[o] = max(responses, key=lambda r: r.sum())[o]
        elif pool == "map":
            output[o] = max((r[o] for r in responses), key=lambda m: m.sum())
        else:
            for index in np.ndindex(*output[o].shape):
                output[o][index] = max(r[o][index] for r in responses)
    return output


def looped_bessel_conv2d(images, weight, bias, **options):
    """The whole layer on numpy arrays (N, C, H, W)."""
    modes = kernel_modes(options["kernel_size"], options["share"])
    kappa = complex_weights(weight, modes)
    outputs = []
    for image in images:
        responses = []
        for offset in options["scales"]:
            taps = sampled_basis(options["kernel_size"] + offset, modes, options["sampling"])
            responses.append(one_scale(image, kappa, taps, modes, options))
        output = keep_strongest(responses, options["scale_pool"])
        outputs.append(output if bias is None else output + bias[:, None, None])
    return np.stack(outputs)

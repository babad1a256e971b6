"""Quarter turns and mirror images leave the logits of the peers, and of other readings of the paper, alone.

Everything is measured relative to the change of the logits from one image to another.
"""

import pytest
import torch

import besselnet_lab.paper  # noqa: F401  (registers its models)
from besselnet.models import create_model, list_models
from models.probes import (
    KINDS,
    NARROW,
    arguments,
    model_params,
    needs_escnn,
    smooth_images,
    train_steps,
    turn_error,
)

# float32: escnn samples kernels in it, and some of its layers compute in nothing else. Measured: at
# most 1e-4.
PEERS = 1e-3
# float64, as in the tests of the library's models.
BCNN = 1e-11

IRREPS = [*list_models("e2cnn_*irreps*"), *list_models("hnet*")]


def build(name, kind, **options):
    torch.manual_seed(0)
    channels, _, size = KINDS[kind]
    model = create_model(name, **arguments(kind), width=NARROW, **options)
    return model, smooth_images(2, channels, size)


@pytest.mark.parametrize("name", list_models("replication_bcnn*"))
def test_authors_variant_is_exact_under_quarter_turns(name):
    # 29 pixels: both poolings meet an odd side.
    model, images = build(name, "mnist", variant="authors-code")
    images = smooth_images(2, 1, 29).double()
    assert turn_error(model.double(), images) < BCNN


@pytest.mark.parametrize("kind", ["mnist", pytest.param("malaria", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", model_params(IRREPS))
def test_irreps_are_exact_under_quarter_turns_on_even_sides(name, kind):
    model, images = build(name, kind)
    train_steps(model, images, steps=1)
    assert turn_error(model, images) < PEERS
    train_steps(model, images, steps=2)
    assert turn_error(model, images) < PEERS


@needs_escnn
@pytest.mark.parametrize("name", ["e2cnn_so2_irreps1", "hnet_so2_1"])
def test_max_pooling_on_an_odd_side_is_not_exact(name):
    # Images of 128 pixels: the second pooled maps have 45.
    model, images = build(name, "galaxy10")
    train_steps(model, images, steps=1)
    assert turn_error(model, images) > 10 * PEERS


@needs_escnn
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["e2cnn_c4", "e2cnn_c8", "e2cnn_so2_irreps1"])
def test_template_pooling_makes_peers_exact_at_every_size(name, kind):
    model, images = build(name, kind, pooling="template")
    train_steps(model, images, steps=1)
    assert turn_error(model, images) < PEERS


@needs_escnn
@pytest.mark.parametrize("name", ["e2cnn_c4", "e2cnn_c8"])
def test_pooling_every_second_pixel_of_an_even_side_is_not_exact(name):
    model, images = build(name, "mnist")
    train_steps(model, images, steps=1)
    assert turn_error(model, images) > 10 * PEERS


@needs_escnn
@pytest.mark.parametrize("nonlinearity", ["norm", "gated"])
@pytest.mark.parametrize("name", ["e2cnn_o2_irreps1", "hnet_o2_1"])
def test_o2_peers_do_not_see_mirror_images(name, nonlinearity):
    model, images = build(name, "mnist", nonlinearity=nonlinearity)
    train_steps(model, images, steps=1)
    assert turn_error(model, images, mirror=True) < PEERS

"""The U-Net on escnn: quarter turns at every size, the budget of its peers, checkpoints."""

import pytest
import torch

import besselnet_lab.paper  # noqa: F401  (registers its models)
from besselnet.models import count_parameters, create_model, model_info, outline_model
from models.probes import needs_escnn, smooth_images

pytestmark = needs_escnn
# float32, as in test_peer_invariance.
PEERS = 1e-3


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    shape = {"in_channels": 1, "num_classes": 3, "image_size": 32}
    built = create_model("e2cnn_c8_unet", **shape, channels=[[2], [2, 2], [3]])
    for module in built.modules():
        if isinstance(getattr(module, "momentum", None), float):
            module.momentum = 1.0
    with torch.no_grad():
        built.train()(smooth_images(2, 1, 32))
    return built.eval()


@pytest.mark.parametrize("size", [(16, 16), (33, 33), (32, 47), (31, 24)])
def test_quarter_turns_turn_the_masks(model, size):
    image = smooth_images(1, 1, 48)[..., : size[0], : size[1]]
    with torch.no_grad():
        logits = model(image)
        turned = model(image.rot90(1, (2, 3))).rot90(-1, (2, 3))
    assert logits.shape == (1, 3, *size)
    assert (turned - logits).abs().max() < PEERS * logits.std()


def test_it_has_the_budget_of_its_peers():
    assert model_info("e2cnn_c8_unet").answers == "pixels"
    counts = [
        count_parameters(build(name, in_channels=3, num_classes=2))
        for build, name in ((create_model, "e2cnn_c8_unet"), (outline_model, "besselnet_unet"))
    ]
    assert counts[0] == pytest.approx(counts[1], rel=0.05)


def test_checkpoints_hold_the_same_keys_in_both_modes(model):
    keys = list(model.eval().state_dict())
    assert list(model.train().state_dict()) == keys
    model.eval()

"""Every row of the paper: build, count, train, save, load."""

import copy

import pytest
import torch

from besselnet.models import count_parameters, create_model
from besselnet_lab.paper import paper_models
from models.probes import arguments, model_params, smooth_images, train_steps

# The rows of the paper's result tables.
ROWS = {
    ("vanilla CNN", "trivial"),
    ("ResNet-18", "trivial"),
    ("E(2)-CNN regular", "C4"),
    ("E(2)-CNN regular", "C8"),
    ("E(2)-CNN irreps<=1", "SO(2)"),
    ("E(2)-CNN irreps<=1", "O(2)"),
    ("E(2)-CNN irreps<=3", "SO(2)"),
    ("E(2)-CNN irreps<=3", "O(2)"),
    ("HNet order 1", "SO(2)"),
    ("HNet order 2", "SO(2)"),
    ("B-CNN k_max", "SO(2)"),
    ("B-CNN k_max", "O(2)"),
    ("B-CNN k_max", "SO(2)+"),
    ("B-CNN k_max", "O(2)+"),
    ("B-CNN k_max/2", "SO(2)"),
}
# Of 115 000. The widths 1 and 1.7 of the B-CNNs are the paper's; what they lack or exceed is the
# normalisation and the rounding of widths, not counted in "close to 115 000".
BCNN_MARGIN = {"bcnn_so2_strong": 0.035}
MARGIN = 0.02


# Rows of the paper by its code, not by their name.
OTHERS = ("hnet_o2_1", "hnet_o2_3", "hnet_so2_3")
MODELS = [*(models.by_name for models in paper_models().values()), *OTHERS]


@pytest.fixture(scope="module", params=model_params(MODELS, slow=OTHERS))
def name(request):
    return request.param


@pytest.fixture(scope="module")
def model(name):
    torch.manual_seed(0)
    return create_model(name, **arguments("mnist"))


def test_every_row_of_the_paper_has_a_model():
    rows = paper_models()
    assert rows.keys() == ROWS
    swapped = {tuple(row) for row, models in rows.items() if models.by_code is not None}
    assert swapped == {row for row in ROWS if "irreps" in row[0] or "HNet" in row[0]}
    assert len({models.by_name for models in rows.values()}) == 15
    for models in rows.values():
        if models.by_code is not None:
            assert models.by_name.startswith("hnet") != models.by_code.startswith("hnet")


def test_parameter_count(name, model):
    if name == "resnet18":
        # The published count for 1000 classes and 3 channels is 11 689 512.
        assert count_parameters(model) == 11_689_512 - 513 * 990 - 2 * 49 * 64
    else:
        margin = BCNN_MARGIN.get(name, MARGIN)
        assert count_parameters(model) == pytest.approx(115_000, rel=margin)
    assert count_parameters(model) == sum(p.numel() for p in model.parameters())


def test_trains_saves_and_loads(name, model, tmp_path):
    images = smooth_images(2, 1, 28)
    fresh = copy.deepcopy(model)
    train_steps(model, images, steps=1)
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
        if parameter.numel() > 100:
            assert parameter.grad.any(), key

    keys = model.state_dict().keys()
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    with torch.no_grad():
        logits = model.eval()(images)
        assert logits.shape == (2, 10)
        assert not torch.allclose(fresh.eval()(images), logits)
        assert model.state_dict().keys() == keys
        fresh.load_state_dict(torch.load(tmp_path / "weights.pt", weights_only=True))
        assert torch.equal(fresh(images), logits)
        assert model.forward_features(images).ndim == 4


def test_checkpoint_holds_learned_numbers_only(model):
    learned = {key for key, _ in model.named_parameters()}
    statistics = ("running_mean", "running_var", "num_batches_tracked")
    others = [key for key in model.state_dict() if key not in learned]
    assert [key for key in others if not key.endswith(statistics)] == []

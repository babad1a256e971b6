"""The replication models: the library's by default, other readings of the paper by option."""

import pytest
import torch

from besselnet.models import (
    count_parameters,
    create_model,
    list_models,
    load_network,
    model_info,
    save_network,
)
from besselnet.nn import AttentiveNorm2d, BesselConv2d, BlurPool2d
from besselnet_lab.paper import varied_model
from models.probes import NARROW, arguments, smooth_images

MNIST = arguments("mnist")
REPLICATIONS = list_models("replication_*")


def test_every_bcnn_the_cnn_and_besselnet_digits_can_be_varied():
    of_the_library = [*list_models("bcnn*"), "besselnet_digits", "cnn"]
    assert {varied_model(name) for name in REPLICATIONS} == set(of_the_library)
    assert varied_model("resnet18") == "resnet18"


@pytest.mark.parametrize("name", REPLICATIONS)
def test_by_default_it_is_the_model_of_the_library(name):
    torch.manual_seed(0)
    varied = create_model(name, **MNIST)
    torch.manual_seed(0)
    plain = create_model(varied_model(name), **MNIST)
    assert varied.recipe.name == name
    states = varied.state_dict(), plain.state_dict()
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    images = smooth_images(2, 1, 28)
    with torch.no_grad():
        assert torch.equal(varied.eval()(images), plain.eval()(images))
    infos = model_info(name), model_info(varied_model(name))
    assert infos[0].training == infos[1].training
    assert infos[0].symmetry == infos[1].symmetry


def test_the_cnn_of_the_published_code_is_wider():
    assert count_parameters(create_model("replication_cnn", **MNIST)) == 114_747
    assert (
        count_parameters(create_model("replication_cnn", **MNIST, variant="authors-code"))
        == 120_212
    )


def test_variants_of_a_bcnn_differ_in_activation_normalisation_and_pooling():
    kinds = {}
    for variant in ("paper", "authors-code"):
        model = create_model("replication_bcnn_so2_plus", **MNIST, variant=variant)
        kinds[variant] = {type(m).__name__ for m in model.modules()}
        sigmas = {m.sigma for m in model.modules() if hasattr(m, "sigma")}
        assert sigmas == ({0.0} if variant == "paper" else {0.66})
        scale_pools = {m.scale_pool for m in model.modules() if isinstance(m, BesselConv2d)}
        assert scale_pools == ({"map"} if variant == "paper" else {"image"})
    assert kinds["paper"] - kinds["authors-code"] == {
        "AttentiveNorm2d",
        "BatchNorm2d",
        "Softsign",
    } | ({"Linear", "Identity"} - kinds["authors-code"])
    assert kinds["authors-code"] - kinds["paper"] == {"Tanh"}


@pytest.mark.parametrize("variant", ["paper", "authors-code"])
@pytest.mark.parametrize(("pooling", "sigma"), [("average", 0.0), ("blur", 0.66), (None, None)])
def test_bcnns_pool_as_they_are_told_or_as_their_variant(variant, pooling, sigma):
    options = {"variant": variant, "pooling": pooling}
    model = create_model("replication_bcnn_so2_strong", **MNIST, **options)
    expected = {"paper": 0.0, "authors-code": 0.66}[variant] if sigma is None else sigma
    assert [m.sigma for m in model.modules() if isinstance(m, BlurPool2d)] == 2 * [expected]


def test_attentive_normalization_as_first_published():
    given, first = (
        create_model("replication_bcnn_so2_strong", **MNIST, attention=attention)
        for attention in ("bcnn", "eccv2020")
    )
    layers = [
        str([m for m in net.modules() if isinstance(m, AttentiveNorm2d)]) for net in (given, first)
    ]
    assert layers[0] != layers[1]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("replication_bcnn_so2_strong", {"mode_norms": "authors", "width": NARROW}),
        ("replication_bcnn_so2_strong", {"variant": "authors-code", "width": NARROW}),
        ("replication_besselnet_digits", {"mode_norms": "authors-pixels"}),
        ("replication_cnn", {"variant": "authors-code", "width": NARROW}),
    ],
)
def test_it_trains_and_a_folder_gives_it_back(name, options, tmp_path):
    torch.manual_seed(0)
    model = create_model(name, **MNIST, **options)
    images = smooth_images(2, 1, 28)
    model(images).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    torch.optim.SGD(model.parameters(), lr=1e-3).step()
    save_network(model, tmp_path)
    found = load_network(tmp_path)
    assert dict(found.recipe.options) == {**model_info(name).options, **options}
    with torch.no_grad():
        assert torch.equal(found(images), model.eval()(images))


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("variant", "papper", "'authors-code'"),
        ("pooling", "max", "'blur'"),
        ("pooling", "", "'blur'"),
        ("mode_norms", "paper", "'authors-pixels'"),
        ("attention", "eccv", "'eccv2020'"),
    ],
)
def test_wrong_value_of_an_option_tells_the_allowed_ones(option, value, allowed):
    with pytest.raises(
        ValueError, match=f"{option if option != 'attention' else 'preset'}=.*{allowed}"
    ):
        create_model("replication_bcnn_so2", **MNIST, **{option: value})

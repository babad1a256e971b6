"""Names, options, and what is said to a user who mistypes them."""

import pytest
from torch import nn

from besselnet.models import create_model, list_models, model_info, register_model
from besselnet.models._registry import _MODELS

MNIST = {"in_channels": 1, "num_classes": 10, "image_size": 28}
BCNNS = ["bcnn_so2", "bcnn_o2", "bcnn_so2_plus", "bcnn_o2_plus", "bcnn_so2_strong"]


def test_list_models_starts_with_those_to_start_with():
    assert list_models()[:14] == [
        "besselnet_small",
        "besselnet_base",
        "besselnet_large",
        "besselnet_gated",
        "besselnet_unet",
        "besselnet_unet_base",
        "unet",
        *BCNNS,
        "cnn",
        "resnet18",
    ]


def test_list_models_takes_a_pattern():
    assert list_models("bcnn*") == BCNNS
    assert list_models("nothing*") == []


def test_unknown_name_tells_the_nearest():
    with pytest.raises(ValueError, match=r"bcn_so2.*nearest.*bcnn_so2"):
        create_model("bcn_so2", **MNIST)


def test_a_name_like_no_other_tells_them_all():
    with pytest.raises(ValueError, match=r"known: besselnet_small, .*resnet18"):
        create_model("####", **MNIST)


def test_unknown_option_tells_the_allowed_ones():
    with pytest.raises(ValueError, match=r"'widht'.*its options: width, padding_scheme"):
        create_model("cnn", **MNIST, widht=2)
    with pytest.raises(ValueError, match="its options: none"):
        create_model("resnet18", **MNIST, width=2)


def test_what_tells_rows_apart_is_no_option():
    with pytest.raises(ValueError, match="no option 'symmetry'"):
        create_model("bcnn_so2", **MNIST, symmetry="O(2)")


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("padding_scheme", "stl10", "'malaria'"),
        ("width", 0, "> 0"),
        ("width", (8, 16, 24), "six integers"),
        ("width", (8, 16, 24, 24, 32, 0), "an integer >= 1"),
        ("width", "8", "a finite number"),
        ("response", "energy", "'power'"),
        ("sampling", "nearest", "'bilinear'"),
    ],
)
def test_wrong_value_of_an_option_tells_the_allowed_ones(option, value, allowed):
    with pytest.raises(ValueError, match=f"{option}=.*{allowed}"):
        create_model("bcnn_so2", **MNIST, **{option: value})


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("in_channels", 0),
        ("num_classes", 2.0),
        ("num_classes", -1),
        ("image_size", 27),
        ("image_size", True),
    ],
)
def test_wrong_shape_of_the_task_is_named(argument, value):
    with pytest.raises(ValueError, match=f"{argument}={value!r}: must be an integer >= "):
        create_model("cnn", **{**MNIST, argument: value})


def test_every_model_says_what_it_keeps():
    for name in list_models():
        info = model_info(name)
        assert info.summary
        assert info.symmetry
        assert info.exactness
        assert info.sizes
        assert info.answers == ("pixels" if "unet" in name or "pixels" in name else "image")


def test_register_model_adds_a_model_and_its_options(monkeypatch):
    monkeypatch.setattr("besselnet.models._registry._MODELS", dict(_MODELS))

    @register_model(
        "linear", symmetry="none", exactness="none", sizes="any", smallest_size=1, fixed={"bias": 0}
    )
    def linear(*, in_channels, num_classes, image_size, bias, scale=1):
        """One matrix.

        For tests.
        """
        return nn.Linear(scale * in_channels * image_size**2, num_classes, bias=bool(bias))

    info = model_info("linear")
    assert info.summary == "One matrix."
    assert info.options == {"scale": 1}
    model = create_model("linear", in_channels=1, num_classes=3, image_size=2, scale=2)
    assert model.weight.shape == (3, 8)
    assert model.bias is None
    with pytest.raises(ValueError, match="'linear' is already registered"):
        register_model("linear", symmetry="none", exactness="none", sizes="any", smallest_size=1)(
            linear
        )


def test_a_builder_must_fit_the_registry():
    add = register_model("x", symmetry="none", exactness="none", sizes="any", smallest_size=1)
    with pytest.raises(TypeError, match="does not accept num_classes, image_size"):
        add(lambda *, in_channels: nn.Identity())
    with pytest.raises(TypeError, match="every option of 'x' must have a default"):
        add(lambda *, in_channels, num_classes, image_size, width: nn.Identity())

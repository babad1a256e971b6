"""The networks on escnn: kernel spaces, options, checkpoints, and life without escnn."""

import subprocess
import sys

import pytest
import torch

from besselnet.export import export_model
from besselnet.models import count_parameters, create_model
from besselnet_lab.paper.peers import _FIELDS
from models.probes import NARROW, arguments, needs_escnn, smooth_images, train_steps, turn_error

MNIST = arguments("mnist")


def kernel_frequencies(name, **options):
    """Angular frequencies of the kernels from (m) to (n) in the second convolution."""
    model = create_model(name, **MNIST, width=(1, 1, 1, 1, 1, 1), **options)
    conv = model.features.layers[1][0]
    found = {}
    for element in conv.basisexpansion.get_basis_info():
        fields = element["in_irrep"][-1], element["out_irrep"][-1]
        found.setdefault(fields, set()).add(element["irrep:frequency"])
    return found


@needs_escnn
def test_kernel_spaces_are_what_the_names_say():
    full = kernel_frequencies("e2cnn_so2_irreps1")
    assert full == {(0, 0): {0}, (0, 1): {1}, (1, 0): {1}, (1, 1): {0, 2}}
    assert kernel_frequencies("hnet_so2_1") == {**full, (1, 1): {0}}
    assert kernel_frequencies("hnet_so2_1", kernels="sum") == {**full, (1, 1): {2}}


@needs_escnn
@pytest.mark.parametrize("name", ["hnet_so2_3", "hnet_o2_3"])
def test_harmonic_networks_keep_the_difference_of_frequencies(name):
    for (m, n), frequencies in kernel_frequencies(name).items():
        assert frequencies == {abs(m - n)}


@needs_escnn
def test_kernels_of_a_harmonic_network_are_never_the_full_space():
    with pytest.raises(ValueError, match=r"kernels='full'.*'difference', 'sum'"):
        create_model("hnet_so2_1", **MNIST, kernels="full")
    with pytest.raises(ValueError, match="no option 'kernels'"):
        create_model("e2cnn_so2_irreps1", **MNIST, kernels="full")


@needs_escnn
@pytest.mark.parametrize("option", ["pooling", "nonlinearity"])
def test_wrong_option_is_named(option):
    with pytest.raises(ValueError, match=f"{option}='relu'"):
        create_model("e2cnn_so2_irreps1", **MNIST, **{option: "relu"})


@needs_escnn
def test_gated_network_has_the_same_budget_trains_and_is_invariant():
    torch.manual_seed(0)
    # The averages of the template: a maximum may jump where two pixels tie.
    model = create_model("e2cnn_so2_irreps1", **MNIST, nonlinearity="gated", pooling="template")
    assert count_parameters(model) == pytest.approx(115_000, rel=0.02)
    images = smooth_images(2, 1, 28)
    train_steps(model, images, steps=2)
    # As in test_invariance.
    assert turn_error(model, images) < 1e-3


@needs_escnn
@pytest.mark.parametrize("mirror", [False, True])
def test_the_norm_activation_is_that_of_escnn(mirror):
    from escnn import gspaces
    from escnn import nn as enn

    from besselnet_lab.paper.steerable import NormActivation

    if mirror:
        space = gspaces.flipRot2dOnR2(-1, maximum_frequency=2)
        kinds = [space.irrep(1, 0), space.irrep(1, 1), space.irrep(1, 2)]
    else:
        space = gspaces.rot2dOnR2(-1, maximum_frequency=2)
        kinds = [space.irrep(1), space.irrep(2)]
    fields = enn.FieldType(space, [kind for kind in kinds for _ in range(3)])
    torch.manual_seed(0)
    fast, slow = NormActivation(fields), enn.NormNonLinearity(fields)
    with torch.no_grad():
        slow.log_bias.normal_()
    fast.load_state_dict(slow.state_dict())
    maps = torch.randn(4, fields.size, 5, 5)
    maps[0] = 0
    weights = torch.randn(maps.shape)

    def outcome(module):
        x = maps.clone().requires_grad_()
        y = module(enn.GeometricTensor(x, fields)).tensor
        return y, *torch.autograd.grad((y * weights).sum(), [x, module.log_bias])

    results = [outcome(module) for module in (fast, slow)]
    assert results[0][0].count_nonzero() > 100
    for found, expected in zip(*results):
        assert torch.allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@needs_escnn
@pytest.mark.parametrize("key", _FIELDS, ids=str)
def test_every_default_width_gives_about_115000_parameters(key):
    group, frequency, kernels, nonlinearity = key
    prefix = group[:-3].lower() + "2"
    name = f"hnet_{prefix}_{frequency}"
    options = {"nonlinearity": nonlinearity, "kernels": kernels}
    if kernels == "full":
        name = f"e2cnn_{prefix}_irreps{frequency}"
        del options["kernels"]
    model = create_model(name, **MNIST, **options)
    assert count_parameters(model) == pytest.approx(115_000, rel=0.02)


@needs_escnn
def test_models_do_not_share_tables():
    first, second = (create_model("e2cnn_so2_irreps1", **MNIST, width=NARROW) for _ in range(2))
    first.double()
    assert second(smooth_images(2, 1, 28)).dtype == torch.float32


@needs_escnn
def test_loading_in_evaluation_mode_takes_effect():
    torch.manual_seed(0)
    first, second = (create_model("e2cnn_c4", **MNIST, width=NARROW).eval() for _ in range(2))
    images = smooth_images(2, 1, 28)
    with torch.no_grad():
        assert not torch.equal(first(images), second(images))
        second.load_state_dict(first.state_dict())
        assert torch.equal(first(images), second(images))


@needs_escnn
def test_building_prints_nothing(capfd):
    create_model("e2cnn_o2_irreps1", **MNIST, width=NARROW)
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def test_without_escnn_the_user_is_told_what_to_install():
    code = (
        "import sys; sys.modules['escnn'] = None\n"
        "import besselnet_lab.paper\n"
        "from besselnet.models import create_model, list_models\n"
        "assert 'e2cnn_c4' in list_models()\n"
        "create_model('e2cnn_c4', in_channels=1, num_classes=10, image_size=28)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith("ValueError: E(2)-CNNs and Harmonic Networks")
    assert "pip install 'besselnet-lab[peers]'" in result.stderr


@needs_escnn
def test_networks_of_escnn_are_refused_in_words_by_the_export(tmp_path):
    peer = create_model("e2cnn_c4", **MNIST, width=0.2)
    with pytest.raises(ValueError, match="layer of escnn"):
        export_model(peer, tmp_path / "peer.onnx", to="onnx", images=torch.rand(2, 1, 28, 28))

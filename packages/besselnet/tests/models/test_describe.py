"""What `describe_model` counts and measures, and how `besselnet models` prints it."""

import json

import pytest
import typer
from typer.testing import CliRunner

from besselnet.cli import main
from besselnet.cli._models import models
from besselnet.models import describe_model

app = typer.Typer()
app.command()(models)


def run(*arguments):
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})


def test_describe_counts_parameters_and_multiply_adds():
    description = describe_model("cnn", width=(1, 1, 1, 1, 1, 2), num_classes=3)
    # Weights and two numbers of BatchNorm for each channel, and the dense layer.
    assert description.parameters == (81 + 49 * 4 + 98) + 2 * 7 + 3 * 3
    convolutions = 28**2 * (81 + 49) + 14**2 * (49 + 49) + 7**2 * 49 + 98
    # Averages of even sizes are not products.
    assert description.multiply_adds == convolutions + 2 * 3


def test_describe_measures_the_change_on_turning():
    # float32; the logits of an invariant network move by rounding alone.
    assert describe_model("bcnn_so2_strong", width=(1, 1, 1, 1, 1, 2)).quarter_turn_error < 1e-3
    assert describe_model("cnn", width=(1, 1, 1, 1, 1, 2)).quarter_turn_error > 0.1


def test_describe_leaves_the_random_numbers_of_the_caller_alone():
    import torch

    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    describe_model("cnn")
    assert torch.equal(torch.rand(2), expected)


def test_cli_lists_models_with_their_parameters():
    result = run("bcnn*")
    assert result.exit_code == 0
    assert "bcnn_so2_strong" in result.output
    assert "116,256" in result.output
    assert "resnet18" not in result.output


def test_cli_describes_a_model():
    result = run("cnn")
    assert result.exit_code == 0
    for word in ("114,747", "multiply-adds", "exactness", "Plain CNN", "padding_scheme=None"):
        assert word in result.output


def test_cli_prints_json():
    described = json.loads(run("cnn", "--json").output)
    assert described["parameters"] == 114_747
    listed = json.loads(run("res*", "--json", "--image-size", "64").output)
    assert [row["name"] for row in listed] == ["resnet18"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bcn_so2",), "nearest: bcnn_so2"),
        (("nothing*",), "no model matches 'nothing*'"),
        (("cnn", "--image-size", "20"), "image_size=20: must be an integer >= 28"),
    ],
)
def test_cli_tells_a_mistake_in_one_line(arguments, message, capsys):
    with pytest.raises(SystemExit) as end:
        main(["models", *arguments])
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("besselnet: ")
    assert message in said
    assert len(said.strip().splitlines()) == 1

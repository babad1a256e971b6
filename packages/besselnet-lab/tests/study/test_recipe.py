"""Recipes: the paper's are complete, wrong ones are refused in one line, cells are what they say."""

import re
from collections import Counter

import pytest

from besselnet.train import recommended_epochs
from besselnet_lab.paper import published, training_images
from besselnet_lab.study.cells import expand, select
from besselnet_lab.study.estimate import steps_of
from besselnet_lab.study.recipe import read_recipe
from places import DOCS, LAB
from study.toys import RECIPE, write_study

RECIPES = LAB / "recipes"
PAPER = sorted((RECIPES / "paper").glob("*.toml"))


@pytest.mark.parametrize("path", sorted(RECIPES.rglob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_that_is_shipped_expands(path):
    cells = expand(read_recipe(path))
    assert cells
    assert "/work" not in path.read_text()
    assert {cell.config.data.root for cell in cells} == {None}


def test_the_recipes_of_the_paper_are_its_450_cells():
    cells = [cell for path in PAPER for cell in expand(read_recipe(path))]
    assert Counter(cell.key.seed for cell in cells) == {0: 450, 1: 450, 2: 450}
    keys = [cell.key for cell in cells if cell.key.seed == 0]
    assert Counter(
        (k.data_set, k.augmentation, k.regime, k.method, k.group) for k in keys
    ) == Counter((n.data_set, n.augmentation, n.regime, n.method, n.group) for n in published())
    assert {cell.key.protocol for cell in cells} == {"paper"}


def test_the_recipes_of_the_paper_have_its_schedule_and_sizes():
    for cell in (cell for path in PAPER for cell in expand(read_recipe(path))):
        key, train, images = cell.key, cell.config.train, cell.images
        assert train.epochs == (150 if key.regime == "low" else 50)
        assert (train.optimizer, train.learning_rate, train.warmup) == ("adam", 1e-3, 0.2)
        assert images.train_images == training_images()[key.data_set, key.regime]
        family = key.data_set.split("-")[0]
        expected = {"MNIST": ("rotate",)}.get(family, ("rotate", "reflect"))
        assert (
            images.augment
            == cell.config.data.augment
            == (expected if key.augmentation == "aug" else ())
        )
        assert images.rotate == (key.augmentation == "upright")
        assert train.seed == images.seed == key.seed


def test_settings_of_recipe_regime_data_column_and_method_follow_each_other(tmp_path):
    recipe = RECIPE.replace("epochs = 2", "epochs = 2\nmomentum = 0.1\nwarmup = 0.1")
    recipe = recipe.replace("[data.D]", "[regimes.low]\nwarmup = 0.3\nclip_norm = 2.0\n\n[data.D]")
    recipe += "train = { clip_norm = 3.0, learning_rate = 0.5 }\n"
    path = write_study(tmp_path, recipe)
    narrow, quick, *_ = (cell.config.train for cell in expand(read_recipe(path)))
    assert (narrow.momentum, narrow.warmup, narrow.batch_size) == (0.1, 0.3, 4)
    assert (narrow.clip_norm, narrow.learning_rate) == (3.0, 0.5)
    assert quick.learning_rate == 0.01


def test_so_many_images_of_each_class_and_settings_for_one_data_set(tmp_path):
    recipe = RECIPE.replace("low = 8", "low = { per_class = 3 }")
    recipe = recipe.replace(
        "train = { learning_rate = 0.01 }", "train_on = { D = { learning_rate = 0.02 } }"
    )
    narrow, quick, *_ = expand(read_recipe(write_study(tmp_path, recipe)))
    assert (narrow.images.train_images, narrow.images.equal_classes) == (6, True)
    assert narrow.train_images == 6
    assert quick.config.train.learning_rate == 0.02


def test_recommended_settings_stand_for_those_of_recipe_regime_and_data(tmp_path):
    recipe = RECIPE.replace('"quick"', '"quick"\nrecommended = true')
    recipe = recipe.replace('"upright"', '"aug"')
    narrow, quick, *_ = expand(read_recipe(write_study(tmp_path, recipe)))
    assert narrow.over_recommended is None
    assert "recommended" not in narrow.settings()
    own = {"learning_rate": 0.01, "seed": 0}
    assert quick.over_recommended == {
        "data": {},
        "train": own,
        "augment": {"without": (), "further": ()},
    }
    assert (quick.settings()["recommended"], quick.settings()["train"]) == (True, own)
    # Mirror images come on top where the recipe has them, and are part of what the cell is.
    mirrored = recipe.replace("[data.D]", '[data.D]\naugment = ["rotate", "reflect"]')
    _, quick, *_ = expand(read_recipe(write_study(tmp_path / "mirrored", mirrored)))
    assert quick.over_recommended["augment"]["further"] == ("reflect",)
    assert quick.settings()["images"]["augment"] == ["reflect"]
    # What a column asks of all its methods holds for these, too.
    short = recipe + "train = { epochs = 3, learning_rate = 0.5 }\n"
    _, quick, *_ = expand(read_recipe(write_study(tmp_path / "short", short)))
    assert quick.over_recommended["train"] == {"epochs": 3, **own}
    # The recommendation decides how images are augmented, but upright images are not rotated.
    upright = expand(read_recipe(write_study(tmp_path, recipe.replace('"aug"', '"upright"'))))
    assert upright[1].over_recommended["augment"]["without"] == ("rotate", "reflect")
    # Without augmentation is without any.
    plain = expand(read_recipe(write_study(tmp_path, recipe.replace('"aug"', '"noaug"'))))
    assert plain[1].over_recommended["data"] == {"augment": []}


def test_recommended_epochs_are_estimated_as_they_will_be(tmp_path):
    recipe = RECIPE.replace('"quick"', '"quick"\nrecommended = true')
    narrow, quick, *_ = expand(read_recipe(write_study(tmp_path, recipe)))
    assert steps_of(narrow) == 2 * 2
    batches = -(-quick.train_images // quick.config.train.batch_size)
    wanted = recommended_epochs(quick.train_images, quick.config.train.batch_size)
    assert steps_of(quick) == wanted * batches
    fixed = write_study(tmp_path, recipe + "train = { epochs = 3 }\n")
    assert steps_of(expand(read_recipe(fixed))[1]) == 3 * batches


def test_settings_from_the_command_line_rule(tmp_path):
    path = write_study(tmp_path)
    recipe = read_recipe(path, ["train.epochs=7", "data.D.options.layout=NHWC", "seeds=[5]"])
    assert {cell.config.train.epochs for cell in expand(recipe)} == {7}
    assert expand(recipe)[0].images.options == {"layout": "NHWC"}
    assert {cell.key.seed for cell in expand(recipe)} == {5}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("seeds = [0, 1]", "sedes = [0]", "unknown setting 'sedes': did you mean 'seeds'?"),
        ("seeds = [0, 1]", "seeds = []", "seeds=[]: must have at least one"),
        ("seeds = [0, 1]", 'seeds = "all"', "seeds='all': must be a list, each item an integer"),
        ('title = "tiny"', "", "title is missing"),
        ("epochs = 2", "epoch = 2", "unknown setting 'train.epoch': did you mean"),
        ('model = "cnn"', 'model = "cmn"', "no model is named 'cmn'"),
        ('model = "cnn"', "", "'narrow' is not a row of the paper"),
        ("width = 0.13", "wide = 0.13", "methods[0].options: 'cnn' has no option 'wide'"),
        (
            "learning_rate = 0.01",
            "learning_rat = 1",
            "unknown setting 'methods[1].train.learning_rat'",
        ),
        ("learning_rate = 0.01", "seed = 1", "methods[1].train.seed"),
        ('data_set = "D"', 'data_set = "E"', "columns[0].data_set: no [data.'E']"),
        ('regimes = ["low"]', 'regimes = ["high"]', "columns[0].regimes: 'high' is not in"),
        (
            '"upright"',
            '"sideways"',
            "columns[0].augmentation='sideways': must be 'aug' or 'noaug' or 'upright'",
        ),
        (
            "low = 8",
            "low = 1.5",
            "data.D.train_images.low=1.5: must be a number of images, a fraction",
        ),
        (
            "low = 8",
            "low = { per_klass = 8 }",
            "data.D.train_images.low={'per_klass': 8}: must be a number of images, a fraction",
        ),
        ("low = 8", "low = { per_class = 0 }", "or { per_class = number }"),
        ("images = 80", "images = 80\nclasses_kept = ['a']", "data.D.classes=2: must be 1"),
        (
            "train = { learning_rate = 0.01 }",
            "train_on = { E = { learning_rate = 0.01 } }",
            "methods[1].train_on: no [data.'E']; known: D",
        ),
        ('source = "npz"', "", "data.D.source is missing"),
        ("[[columns]]", "[columns]", ": must be a list of tables [[columns]]"),
        (
            "[[columns]]",
            "[[columns]]\nmethods = ['x*']",
            "columns[0].methods: 'x*' matches none of",
        ),
        ("title", "title = ", "tiny.toml"),
    ],
)
def test_a_wrong_recipe_is_refused_naming_file_and_key(tmp_path, old, new, said):
    path = write_study(tmp_path, RECIPE.replace(old, new, 1))
    with pytest.raises(ValueError) as error:
        expand(read_recipe(path))
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert said.startswith("columns[0].methods") or "tiny.toml" in str(error.value)


def test_a_cell_that_is_there_twice_is_refused(tmp_path):
    recipe = RECIPE + '[[columns]]\ndata_set = "D"\naugmentation = "upright"\nregimes = ["low"]\n'
    with pytest.raises(ValueError, match="occurs twice"):
        expand(read_recipe(write_study(tmp_path, recipe)))


def test_cells_have_names_of_their_own():
    cells = [cell for path in PAPER for cell in expand(read_recipe(path))]
    assert len({cell.key.identity for cell in cells}) == len(cells)


def test_select_takes_patterns_that_all_hold():
    cells = expand(read_recipe(RECIPES / "paper" / "mnist.toml"))
    chosen = select(cells, ["method=B-CNN*,regime=low", "group=SO(2)"])
    assert {c.key.method for c in chosen} == {"B-CNN k_max", "B-CNN k_max/2"}
    assert {(c.key.regime, c.key.group) for c in chosen} == {("low", "SO(2)")}
    assert len(chosen) == 2 * 3 * 3
    assert len(select(cells, ["seed=1"])) == len(cells) / 3


@pytest.mark.parametrize("only", ["metod=B*", "method", "method=Z*", "regime=low,method=Z*"])
def test_select_says_what_there_is(only):
    cells = expand(read_recipe(RECIPES / "paper" / "mnist.toml"))
    with pytest.raises(ValueError, match=r"method must be one of: B-CNN|a field of data_set"):
        select(cells, [only])


def test_the_recipe_in_the_documentation_is_one(tmp_path):
    text = (DOCS / "studies.md").read_text()
    (recipe,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    path = tmp_path / "own.toml"
    path.write_text(recipe)
    cells = expand(read_recipe(path))
    assert {cell.key.method for cell in cells} == {"narrow", "narrow, fast"}
    assert {cell.images.classes_kept for cell in cells} == {("infected", "healthy")}
    assert {cell.config.train.epochs for cell in cells if cell.key.regime == "few"} == {100}
    assert {cell.config.train.epochs for cell in cells if cell.key.regime == "many"} == {30}
    assert {cell.images.judge for cell in cells} == {"val"}
    fast = select(cells, ["method=narrow? fast"])
    assert {cell.config.data.interpolation for cell in fast} == {"bilinear"}
    assert {cell.config.train.batch_size for cell in fast} == {16}

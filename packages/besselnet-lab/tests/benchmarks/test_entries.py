"""The entries: the package's own are complete, and a mistake in a file is said in one line."""

import pytest

from besselnet_lab.benchmarks import choose_entries, read_entries
from besselnet_lab.benchmarks.subjects import multiply_adds

GOOD = """
[timing]
rounds = 1
fewest_rounds = 1
seconds_per_case = 1.0
seconds_per_round = 0.0
[entries.tiny]
about = "a tiny layer"
measures = ["forward"]
baseline = "plain"
common = { kernel_size = 3, in_channels = 1, out_channels = 1, size = 8, batch = 1 }
cases = [{}]
candidates = { plain = { layer = "Conv2d" }, ours = { layer = "BesselConv2d" } }
"""


def of_entry(name, key, quick=False):
    entry = read_entries(quick=quick)[1][name]
    return {
        s[key] for c in entry.cases for n in entry.candidates if key in (s := entry.settings(c, n))
    }


@pytest.mark.parametrize("quick", [False, True])
def test_the_packages_entries_are_read_and_every_layer_can_be_counted(quick):
    timing, entries = read_entries(quick=quick)
    assert timing.rounds >= timing.fewest_rounds >= 1
    for entry in entries.values():
        for case in entry.cases:
            for name in entry.candidates:
                settings = entry.settings(case, name)
                assert "model" in settings or multiply_adds(settings) > 0


def test_labels_tell_the_cases_of_an_entry_apart():
    for quick in (False, True):
        for entry in read_entries(quick=quick)[1].values():
            labels = [entry.label(case) for case in entry.cases]
            assert len(set(labels)) == len(labels)


def test_the_layer_entry_covers_kernels_channels_sizes_cutoffs_and_symmetries():
    assert of_entry("layer", "kernel_size") >= {5, 7, 9, 11}
    assert of_entry("layer", "size") >= {7, 14, 28, 32, 64}
    assert of_entry("layer", "in_channels") >= {1, 8, 24, 64, 128}
    assert of_entry("layer", "cutoff") == {"soft", "strong"}
    assert of_entry("layer", "symmetry") == {"SO(2)", "O(2)"}
    assert of_entry("growth", "kernel_size") == {5, 7, 9, 11, 13}
    assert len(of_entry("choice", "groups")) >= 3


def test_every_bound_names_candidates_of_its_entry_and_a_measure_it_takes():
    for entry in read_entries()[1].values():
        for bound in entry.bounds:
            assert set(bound.candidates) <= entry.candidates.keys()
            assert bound.measure in entry.measures


def test_an_unknown_entry_is_named_with_the_known_ones():
    _, entries = read_entries()
    with pytest.raises(ValueError, match=r"'layers'.*known: layer, layer64"):
        choose_entries(entries, ["layers"])
    assert [e.name for e in choose_entries(entries, ["growth", "layer"])] == ["layer", "growth"]
    assert len(choose_entries(entries, [])) == len(entries)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[timing]", "[time]", "'timing' is missing"),
        ("rounds = 1\nfew", "turns = 1\nfew", "turns"),
        ('measures = ["forward"]', 'measures = ["speed"]', "'speed'"),
        ('measures = ["forward"]', "", "'measures' is missing"),
        ("cases = [{}]", "cases = []", "no cases"),
        ("cases = [{}]", "cases = [{ kernel = 5 }]", "unknown setting 'kernel'"),
        ("cases = [{}]", 'cases = [{}]\nsumary = "choice"', "unknown key 'sumary'"),
        ("cases = [{}]", 'cases = [{}]\nsummary = "mean"', "'mean'"),
        ("size = 8, ", "", "'size' is missing"),
        ('baseline = "plain"', 'baseline = "other"', "'other'"),
        ('layer = "Conv2d"', 'layer = "Conv3d"', "'Conv3d'"),
        ("[entries.tiny]", "[entries.tiny", "Expected"),
    ],
)
def test_a_mistake_in_a_file_is_named(tmp_path, old, new, message):
    path = tmp_path / "mine.toml"
    assert GOOD.count(old) == 1
    path.write_text(GOOD)
    read_entries(path)
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(ValueError, match=r"mine\.toml") as error:
        read_entries(path)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "line", ["at_least = 1.0\nat_most = 2.0", "", 'at_most = 1.0\nlargest = "a"']
)
def test_a_bound_has_one_limit_and_one_quantity(tmp_path, line):
    path = tmp_path / "mine.toml"
    head = (
        '[[entries.tiny.bounds]]\ntext = "t"\nmeasure = "forward"\nquotient = ["ours", "plain"]\n'
    )
    path.write_text(GOOD + head + line)
    with pytest.raises(ValueError, match="requires one of"):
        read_entries(path)

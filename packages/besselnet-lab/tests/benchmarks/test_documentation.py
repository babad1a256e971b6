"""The numbers and the example in the documentation are what the code says."""

import re

import pytest

from besselnet.functional import BasisSpec, _cost, _layouts, direct_cost, factored_cost
from besselnet_lab.benchmarks import read_entries
from besselnet_lab.benchmarks.judge import fitted_exponent
from places import DOCS, LAB

PAGE = (DOCS / "factored.md").read_text(encoding="utf-8")
COUNTS = re.findall(r"^\| (\d+) (strong|soft) \|(.*)\|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("kernel_size", "cutoff", "cells"), COUNTS, ids=lambda x: str(x).strip())
def test_operation_counts(kernel_size, cutoff, cells):
    basis = BasisSpec.checked(int(kernel_size), cutoff=cutoff)
    plain = basis.kernel_size**2
    # One output channel and two share the analysis: what the second adds is the mix.
    one, two = (factored_cost(basis, 1, outputs, 1).operations for outputs in (1, 2))
    mix, analyse = two - one, 2 * one - two
    expected = [plain, direct_cost(basis, 1, 1, 1).operations, mix, analyse, basis.num_weights]
    *counts, ratio = cells.split("|")
    assert [int(count) for count in counts] == expected
    assert float(ratio) == pytest.approx((analyse / 64 + mix) / plain, abs=0.005)


def test_the_table_is_there():
    assert len(COUNTS) == 10


@pytest.mark.parametrize(("cutoff", "share"), [("strong", 0.79), ("soft", 2.41)])
def test_share_of_a_training_step(cutoff, share):
    basis = BasisSpec.checked(7, cutoff=cutoff)
    analyse = basis.num_weights * 49 / 64
    mix = factored_cost(basis, 1, 64, 1).operations / 64 - analyse
    assert (3 * analyse + 4 * mix) / (3 * 49) == pytest.approx(share, abs=0.005)
    assert str(share) in PAGE


@pytest.mark.parametrize("cutoff", ["strong", "soft"])
def test_exponents_of_the_operations(cutoff):
    sizes = (5, 7, 9, 11, 13)
    shown = re.search(rf"^\| {cutoff} \| ([\d.]+) \| ([\d.]+) \|$", PAGE, re.MULTILINE)
    for cost, text in zip((direct_cost, factored_cost), shown.groups()):
        counts = [cost(BasisSpec.checked(k, cutoff=cutoff), 64, 64, 1).operations for k in sizes]
        assert fitted_exponent(sizes, counts) == pytest.approx(float(text), abs=0.005)


def test_constants_that_are_named_exist():
    named = set(re.findall(r"`([A-Z]+_[A-Z_]*[A-Z])`", PAGE))
    owners = {
        _layouts: {"WORKSPACE_BYTES", "FEWEST_FILTERS", "SLAB_CHANNELS"},
        _cost: {"OPERATIONS_PER_NUMBER", "FACTORED_HANDICAP", "FACTORED_STEPS"},
    }
    assert named == set().union(*owners.values())
    assert all(hasattr(module, name) for module, names in owners.items() for name in names)


def test_the_example_of_an_entry_can_be_read(tmp_path):
    page = (LAB / "benchmarks" / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    path = tmp_path / "example.toml"
    path.write_text(example)
    _, entries = read_entries(path)
    assert list(entries) == ["mine"]
    assert all(f"`{name}`" in page for name in read_entries()[1])

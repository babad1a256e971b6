"""The published numbers agree with what the paper says about them."""

from collections import Counter

from besselnet_lab.paper import paper_models, published, training_images


def columns():
    found = {}
    for number in published():
        key = (number.data_set, number.augmentation, number.regime)
        found.setdefault(key, []).append(number)
    return found


def test_there_are_15_methods_in_30_columns():
    assert len(published()) == 450
    assert {len(numbers) for numbers in columns().values()} == {15}
    assert len(columns()) == 30
    assert {(n.method, n.group) for n in published()} == set(paper_models())
    assert {(n.data_set, n.regime) for n in published()} == set(training_images())


def test_first_places_are_those_that_the_discussion_counts():
    """Section 7.1: in how many of the 30 columns a family has a place among the first, or first three."""
    for place, expected in ((1, (8, 16, 9)), (3, (17, 22, 22))):
        families, strong = Counter(), 0
        for numbers in columns().values():
            limit = sorted((n.accuracy for n in numbers), reverse=True)[place - 1]
            top = [n for n in numbers if n.accuracy >= limit]
            families.update({n.method.split()[0] for n in top})
            strong += any(n.method == "B-CNN k_max/2" for n in top)
        assert (strong, families["B-CNN"], families["E(2)-CNN"]) == expected

"""What follows from the numbers: ratios, exponents, choices and verdicts, on numbers made by hand."""

import pytest

from besselnet.functional import BasisSpec, cheaper_algorithm
from besselnet_lab.benchmarks.entries import Bound
from besselnet_lab.benchmarks.judge import choices, exponents, judge, ratios, unsteady


def case(values, rounds=None, **settings):
    """A case of a report with one measure, "training"."""
    results = {
        name: {
            "values": {} if value is None else {"training": value},
            "rounds": {"training": (rounds or {}).get(name, [value])},
        }
        for name, value in values.items()
    }
    return {"label": str(settings), "settings": settings, "results": results}


def bound(quantity, *candidates, **limits):
    return Bound("text", "training", quantity, candidates, **limits)


def test_ratios_are_to_the_baseline_and_left_out_candidates_have_none():
    found = ratios(case({"plain": 2.0, "ours": 3.0, "gone": None}), "plain", "training")
    assert found == {"plain": 1.0, "ours": 1.5}
    assert ratios(case({"plain": None, "ours": 3.0}), "plain", "training") == {}
    assert ratios(case({"ours": 3.0}), None, "training") == {}


def test_the_exponent_of_a_power_law_is_its_power():
    cases = [
        case({"cubic": 7e-3 * k**3, "flat": 0.2, "once": 1.0 if k == 5 else None}, kernel_size=k)
        for k in (5, 7, 9, 11, 13)
    ]
    found = exponents(cases, "training")
    assert found.keys() == {"cubic", "flat"}
    assert found["cubic"] == pytest.approx(3, abs=1e-12)
    assert found["flat"] == pytest.approx(0, abs=1e-12)


def test_choices_count_what_the_cost_model_takes_and_what_it_loses():
    shape = {"kernel_size": 7, "in_channels": 24, "out_channels": 24, "size": 64}
    assert cheaper_algorithm(BasisSpec.checked(7), 24, 24, 1) == "factored"
    cases = [
        case({"factored": 1.0, "direct": 2.0}, **shape, batch=21),
        case({"factored": 3.0, "direct": 2.0}, **shape, batch=22),
        case({"factored": 3.0, "direct": None}, **shape, batch=23),
    ]
    found = choices(cases, "training")
    assert (found["cases"], found["faster_taken"], found["worst_loss"]) == (2, 1, 1.5)
    assert found["worst_case"] == cases[1]["label"]
    assert choices([], "training")["worst_loss"] is None


@pytest.mark.parametrize(
    ("limits", "verdict"),
    [
        ({"at_least": 3.0}, "met"),
        ({"at_least": 3.0, "aim": 5.0}, "met"),
        ({"at_least": 3.0, "aim": 4.0}, "met, aim reached"),
        ({"at_least": 4.5}, "not met"),
        ({"at_most": 4.5}, "met"),
        ({"at_most": 4.5, "aim": 4.2}, "met, aim reached"),
        ({"at_most": 4.5, "aim": 3.0}, "met"),
        ({"at_most": 3.9}, "not met"),
    ],
)
def test_verdicts_on_a_quotient_of_four(limits, verdict):
    cases = [case({"slow": 8.0, "fast": 2.0})]
    found = judge(bound("quotient", "slow", "fast", **limits), cases)
    assert found["measured"] == 4.0
    assert found["verdict"] == verdict


def test_over_several_cases_the_worst_counts():
    cases = [case({"slow": 8.0, "fast": 2.0}), case({"slow": 3.0, "fast": 1.0})]
    assert judge(bound("quotient", "slow", "fast", at_least=3.5), cases)["measured"] == 3.0
    assert judge(bound("quotient", "slow", "fast", at_most=3.5), cases)["measured"] == 4.0
    assert judge(bound("largest", "slow", at_most=9.0), cases)["measured"] == 8.0


def test_exponents_are_compared_by_their_difference():
    cases = [case({"direct": k**3.0, "factored": k**2.0}, kernel_size=k) for k in (5, 7, 9)]
    found = judge(bound("exponents", "direct", "factored", at_least=0.7), cases)
    assert found["measured"] == pytest.approx(1)


@pytest.mark.parametrize("quantity", ["quotient", "exponents"])
def test_nothing_is_judged_without_both_numbers_nor_on_a_quick_run(quantity):
    missing = [case({"a": 8.0, "b": None}, kernel_size=k) for k in (5, 7)]
    found = judge(bound(quantity, "a", "b", at_least=1.0), missing)
    assert (found["measured"], found["verdict"]) == (None, "not judged")
    there = [case({"a": float(k), "b": 1.0}, kernel_size=k) for k in (5, 7)]
    found = judge(bound(quantity, "a", "b", at_least=0.5), there, quick=True)
    assert found["measured"] is not None
    assert found["verdict"] == "not judged"


def test_a_disturbed_timing_is_one_whose_median_round_is_far_from_the_best():
    rounds = {"calm": [1.0, 1.1, 1.2], "once": [1.0, 1.1, 9.0], "busy": [1.0, 2.0, 2.0]}
    assert unsteady([case(dict.fromkeys(rounds, 1.0), rounds)]) == (1, 3)

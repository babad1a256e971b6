"""The shape of a report: what a reader of ``benchmarks/results/*.json`` may rely on."""

from numbers import Real

NUMBER = Real
OPTIONAL_NUMBER = (Real, type(None))
OPTIONAL_TEXT = (str, type(None))

BOUND = {
    "text": str,
    "measured": OPTIONAL_NUMBER,
    "at_least": OPTIONAL_NUMBER,
    "at_most": OPTIONAL_NUMBER,
    "aim": OPTIONAL_NUMBER,
    "verdict": str,
}
RESULT = {
    "settings": dict,
    "parameters": (int, type(None)),
    "values": dict,
    "rounds": dict,
    "left_out": dict,
}
CASE = {"label": str, "settings": dict, "results": dict}
REPORT = {
    "format": int,
    "entry": str,
    "about": str,
    "quick": bool,
    "date": str,
    "seed": int,
    "threads": int,
    "measures": list,
    "baseline": OPTIONAL_TEXT,
    "cases": list,
    "summary_kind": OPTIONAL_TEXT,
    "summary": dict,
    "bounds": list,
}
ENVIRONMENT = {"versions": dict, "machine": dict, "commit": OPTIONAL_TEXT}
VERSIONS = ("python", "torch", "numpy", "besselnet", "escnn")


def check(value, schema, where):
    for key, kind in schema.items():
        assert key in value, f"{where} has no {key!r}"
        assert isinstance(value[key], kind), f"{where}.{key} is {value[key]!r}"


def check_report(report, *, environment=True):
    check(report, REPORT, "report")
    for case in report["cases"]:
        check(case, CASE, "case")
        for name, result in case["results"].items():
            where = f"{case['label']}, {name}"
            check(result, RESULT, where)
            assert all(isinstance(v, Real) for v in result["values"].values()), where
            assert result["values"].keys() <= set(report["measures"]), where
            for measure in report["measures"]:
                # A number, or the reason why there is none.
                assert measure in result["values"] or result["left_out"].keys() & {measure, "all"}
    for bound in report["bounds"]:
        check(bound, BOUND, bound["text"])
    if environment:
        check(report["environment"], ENVIRONMENT, "environment")
        assert set(VERSIONS) <= report["environment"]["versions"].keys()
        assert {"processor", "cores", "threads"} <= report["environment"]["machine"].keys()

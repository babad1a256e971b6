"""docs/results is what `make report` writes of the committed results."""

import re
from pathlib import Path

from besselnet.study.report import write_report
from besselnet.study.store import Store

RESULTS = Path(__file__).parents[2] / "results"
REPORT = RESULTS.parent / "docs" / "results"


def test_the_report_is_up_to_date(tmp_path):
    makefile = (RESULTS.parent / "Makefile").read_text()
    (names,) = re.findall(r"^STUDIES := \$\(addprefix results/,(.*)\)$", makefile, re.MULTILINE)
    (title,) = re.findall(r'study report \$\(STUDIES\).* --title "(.*)"', makefile)
    results = [result for name in names.split() for result in Store(RESULTS / name).results()]
    write_report(results, tmp_path, title)
    assert (REPORT / "report.md").read_text() == (tmp_path / "report.md").read_text()
    drawn = {path.name for path in (tmp_path / "figures").iterdir()}
    assert drawn == {path.name for path in (REPORT / "figures").iterdir()}

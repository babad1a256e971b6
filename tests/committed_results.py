"""The tables of a page, and the numbers of the committed results that they are held against."""

import json
import re
import statistics

from besselnet_lab.paper.reference import published
from places import LAB


def table_below(page, heading):
    """The rows of the table under a heading of a page, as lists of cells."""
    section = re.split(r"\n#+ ", page.read_text().partition(f"# {heading}\n")[2])[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip(" *") for cell in row.strip("|").split("|")] for row in rows[1:]]


def accuracies(column, method):
    """Percent of each seed of a method, from the results in a folder such as "here/mnist-upright-low"."""
    files = sorted((LAB / "results" / column).glob(f"{method}.seed*.json"))
    return [100 * json.loads(file.read_text())["accuracy"] for file in files]


def listed(column, method):
    """The seeds of a method one by one, as the pages write them."""
    return ", ".join(f"{value:.2f}" for value in accuracies(column, method))


def score(column, method):
    """Mean and deviation over the seeds of a method, as the pages write them."""
    values = accuracies(column, method)
    if not values:
        return "not run"
    if len(values) == 1:
        return f"{values[0]:.2f} (one seed)"
    return f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}"


def bare_score(column, method):
    """The same where the page says elsewhere which numbers are of one seed."""
    return score(column, method).removesuffix(" (one seed)")


def in_the_paper(column, method, group="SO(2)"):
    """The paper's mean and deviation for (data set, augmentation, regime), as the pages write them."""
    (number,) = (n for n in published() if n[1:6] == (*column, method, group))
    return as_written(number)


def as_written(number):
    """A number of the paper, as the pages write it."""
    return f"{number.accuracy:.2f} ± {number.std:.2f}"

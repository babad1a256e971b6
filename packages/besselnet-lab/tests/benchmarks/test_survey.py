"""What very many images cost: the formulas, their rates, and the page that shows them."""

import json
import re
import socket
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from besselnet_lab.benchmarks import Rates, SurveySettings, cost_tables, simulate, survey_rates
from besselnet_lab.benchmarks.cost import MACHINES, Machines, show_bytes, show_time

LAB = Path(__file__).parents[2]
REPORT = LAB / "benchmarks" / "survey.json"
PAGE = LAB.parents[1] / "docs" / "cost-at-scale.md"

RATES = Rates(
    size=64,
    walk=2e-6,
    cut=1e-6,
    decode=2e-4,
    answer=1e-3,
    serve=1e-5,
    tar_answer=1e-3,
    tar_serve=3e-5,
    store=3e-4,
    unpack=4e-5,
    step=5e-3,
    file_bytes=2500,
    tar_bytes=4000,
    row_bytes=100,
    cache_bytes=12_300,
)


def test_one_core_does_everything_itself():
    alone = Machines("", 1, 1)
    assert RATES.predict(1000, alone, files=False) == pytest.approx(1.03)
    assert RATES.predict(1000, alone, files=True) == pytest.approx(1.013)
    assert RATES.epoch(1000, alone, cached=True) == pytest.approx(5)
    assert RATES.epoch(1000, alone, cached=False) == pytest.approx(5.24)


@pytest.mark.parametrize("files", [True, False])
def test_more_machines_are_never_slower(files):
    times = [RATES.predict(10**6, machines, files=files) for machines in MACHINES]
    assert times == sorted(times, reverse=True)
    for cached in (True, False):
        times = [RATES.epoch(10**6, machines, cached=cached) for machines in MACHINES]
        assert times == sorted(times, reverse=True)


def test_the_first_process_of_a_machine_limits_it():
    slow = replace(RATES, tar_serve=1e-4)
    many = [slow.predict(10**6, Machines("", 1, cores), files=False) for cores in (64, 1024)]
    assert many == pytest.approx([100, 100])
    assert slow.first_busy(MACHINES[1], files=False) == pytest.approx(1)
    assert RATES.first_busy(MACHINES[1], files=True) < 0.6
    # Jobs on other machines have first processes of their own.
    assert slow.predict(10**6, Machines("", 4, 64), files=False) == pytest.approx(25)


def test_every_process_of_a_training_reads_all_shards():
    least = 10**6 * RATES.unpack
    assert RATES.epoch(10**6, Machines("", 10**6, 64), cached=False) == pytest.approx(
        least, rel=1e-3
    )


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(1, "1.0 s"), (80, "80 s"), (90, "1.5 min"), (7200, "2.0 h"), (1e7, "116 days")],
)
def test_times_are_in_a_unit_that_suits(seconds, shown):
    assert show_time(seconds) == shown


def test_bytes_are_in_a_unit_that_suits():
    assert [show_bytes(10.0**power) for power in (7, 10, 13)] == ["10 MB", "10 GB", "10 TB"]


def test_rates_are_measured():
    pytest.importorskip("filelock")
    settings = SurveySettings(model="cnn", files=40, side=28, classes=2, batch=8, steps=1)
    found = survey_rates(settings, 28)
    # Three bytes a pixel, and the hash and place of each image.
    assert 3 * 28**2 < found.cache_bytes < 3 * 28**2 + 100
    assert found.tar_bytes > found.file_bytes > 100
    seconds = {name: value for name, value in asdict(found).items() if name != "size"}
    assert all(value >= 0 for value in seconds.values())
    assert min(found.decode, found.store, found.unpack, found.step, found.serve) > 0


def test_a_rehearsal_has_a_row_for_every_image():
    found = simulate(1030, rows_per_file=100)
    assert (found["images"], found["files"]) == (1030, 11)


def test_the_page_shows_the_committed_rates():
    report = json.loads(REPORT.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    for table in cost_tables([Rates(**rates) for rates in report["rates"]]):
        for row in table.rows:
            assert "| " + " | ".join(row) + " |" in page, table.title
    assert f"{report['rehearsal']['images']:,}".replace(",", " ") in page
    assert report["settings"]["files"] == 10_000
    assert socket.gethostname() not in REPORT.read_text()
    assert not re.search(r'"/', REPORT.read_text()), "a path"

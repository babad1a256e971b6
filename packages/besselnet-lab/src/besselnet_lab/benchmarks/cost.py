"""What very many images cost on machines that are not here: hours and disk, on paper, from measured rates.

With t the seconds of one core for an image (`Rates`), N images, M machines of C cores, and the share E of
its speed that a core keeps while all others work:

| what | seconds |
|---|---|
| predict, from files | N / M * max((answer + serve) / (C E), serve) + N * (walk + cut) |
| predict, from tar archives | N / M * max((tar_answer + tar_serve) / (C E), tar_serve) |
| make the cache | N * store |
| one epoch, from the cache | N * step / (M C E) |
| one epoch, from tar shards | N * (decode + step) / (M C E) + N * unpack |

Every machine runs one job of `predict --shard`. It lists all files, and its first process cuts the work and
writes the rows. One process makes a cache. Every process of a training reads all of its shards.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

from besselnet_lab.benchmarks.tables import TextTable

# Of a core while all others of its machine work: memory and clock are shared. An assumption.
SHARED = 0.8
COUNTS = (10**6, 10**8)


class Machines(NamedTuple):
    """So many machines, with so many cores each."""

    name: str
    number: int
    cores: int

    @property
    def speed(self) -> float:
        """Cores that work at full speed, of one machine."""
        return self.cores * (SHARED if self.cores > 1 else 1)


MACHINES = (
    Machines("one core", 1, 1),
    Machines("64 cores", 1, 64),
    Machines("16 x 64 cores", 16, 64),
)


@dataclass(frozen=True)
class Rates:
    """Measured: seconds of one core, or bytes, for each image.

    Attributes:
        size: side in pixels at which the network takes images.
        walk: finding a file in its folder; `cut`: planning its work.
        decode: reading and decoding, part of `answer`.
        answer: a worker of `predict`, from file to row.
        serve: the first process of `predict`: sends names, receives and writes rows.
        tar_answer, tar_serve: the same for an image in a tar archive, where the first process finds it.
        store: reading, decoding and writing it into the cache of a training.
        unpack: reading it from a tar shard, without decoding.
        step: its share of a training step, with augmentation, from the cache.
        file_bytes, tar_bytes, row_bytes, cache_bytes: on disk.
    """

    size: int
    walk: float
    cut: float
    decode: float
    answer: float
    serve: float
    tar_answer: float
    tar_serve: float
    store: float
    unpack: float
    step: float
    file_bytes: float
    tar_bytes: float
    row_bytes: float
    cache_bytes: float

    def predict(self, images: int, machines: Machines, *, files: bool) -> float:
        """Seconds."""
        listing = images * (self.walk + self.cut) if files else 0.0
        return images / machines.number / self.pace(machines, files=files) + listing

    def pace(self, machines: Machines, *, files: bool) -> float:
        """Images that one of the machines answers in a second."""
        answer, serve = self._worker_and_first(files)
        return 1 / max((answer + serve) / machines.speed, serve)

    def first_busy(self, machines: Machines, *, files: bool) -> float:
        """The share of its time in which the first process of a machine works."""
        return self.pace(machines, files=files) * self._worker_and_first(files)[1]

    def _worker_and_first(self, files: bool) -> tuple[float, float]:
        return (self.answer, self.serve) if files else (self.tar_answer, self.tar_serve)

    def epoch(self, images: int, machines: Machines, *, cached: bool) -> float:
        """Seconds."""
        cores = machines.number * machines.speed
        if cached:
            return images * self.step / cores
        return images * (self.decode + self.step) / cores + images * self.unpack


def cost_tables(all_rates: Sequence[Rates]) -> list[TextTable]:
    """Rates, time, disk and limits, for each size of images."""
    tables = [_rates_table(all_rates)]
    for rates in all_rates:
        tables += [_time_table(rates), _limit_table(rates)]
    return [*tables, _disk_table(all_rates)]


def _rates_table(all_rates: Sequence[Rates]) -> TextTable:
    rows = []
    for field in fields(Rates)[1:]:
        values = [getattr(rates, field.name) for rates in all_rates]
        of_bytes = field.name.endswith("_bytes")
        shown = [f"{v:,.0f}" if of_bytes else show_microseconds(v) for v in values]
        rows.append([field.name.replace("_", " "), *shown])
    sizes = [f"{rates.size} pixels" for rates in all_rates]
    return TextTable("One image, one core: measured", ["rate", *sizes], rows)


def _time_table(rates: Rates) -> TextTable:
    rows = []
    for count in COUNTS:
        tasks = {
            "predict, files": [rates.predict(count, m, files=True) for m in MACHINES],
            "predict, tar archives": [rates.predict(count, m, files=False) for m in MACHINES],
            "make the cache": [count * rates.store] * len(MACHINES),
            "one epoch, cache": [rates.epoch(count, m, cached=True) for m in MACHINES],
            "one epoch, tar shards": [rates.epoch(count, m, cached=False) for m in MACHINES],
        }
        for name, seconds in tasks.items():
            rows.append([f"{name}, {in_powers(count)} images", *map(show_time, seconds)])
    names = [machines.name for machines in MACHINES]
    return TextTable(f"Time, images of {rates.size} pixels", ["task", *names], rows)


def _limit_table(rates: Rates) -> TextTable:
    rows = []
    for machines in MACHINES[:2]:
        for files in (True, False):
            pace = rates.pace(machines, files=files)
            read = pace * (rates.file_bytes if files else rates.tar_bytes)
            rows.append(
                [
                    f"{machines.name}, {'files' if files else 'tar archives'}",
                    *(f"{pace:,.0f}", f"{read / 1e6:,.0f}", f"{pace * rates.row_bytes / 1e6:.1f}"),
                    f"{rates.first_busy(machines, files=files):.0%}",
                ]
            )
    share = rates.decode / (rates.answer + rates.serve)
    title = (
        f"Predict, images of {rates.size} pixels: one machine (decoding is {share:.0%} of the work)"
    )
    heads = ["machine", "images/s", "MB/s read", "MB/s written", "first process busy"]
    return TextTable(title, heads, rows)


def _disk_table(all_rates: Sequence[Rates]) -> TextTable:
    first = all_rates[0]
    kinds = {
        "files": first.file_bytes,
        "tar archives": first.tar_bytes,
        "rows (CSV)": first.row_bytes,
        **{f"cache at {rates.size} pixels": rates.cache_bytes for rates in all_rates},
    }
    rows = [[name, *(show_bytes(count * size) for count in COUNTS)] for name, size in kinds.items()]
    return TextTable("Disk", ["what", *(f"{in_powers(c)} images" for c in COUNTS)], rows)


def in_powers(count: int) -> str:
    """10^6 for a million."""
    return f"10^{len(str(count)) - 1}"


def show_microseconds(seconds: float) -> str:
    """Two digits of small ones, all of large ones."""
    value = 1e6 * seconds
    return f"{value:,.0f} µs" if value >= 10 else f"{value:.1f} µs"


def show_time(seconds: float) -> str:
    """In the unit that suits it."""
    units = (("days", 86_400.0), ("h", 3_600.0), ("min", 60.0))
    unit, length = next((u for u in units if seconds >= 1.5 * u[1]), ("s", 1.0))
    value = seconds / length
    return f"{value:,.0f} {unit}" if value >= 10 else f"{value:.1f} {unit}"


def show_bytes(number: float) -> str:
    """In the unit that suits it."""
    for unit, length in (("TB", 1e12), ("GB", 1e9)):
        if number >= length:
            return f"{number / length:.3g} {unit}"
    return f"{number / 1e6:.3g} MB"

"""Everything: `python -m benchmarks` at full size (over an hour on a small machine), `--quick` at a tenth of it.

Runs the parts in turn, keeps the records of each in benchmarks/results/ as soon as they are there, prints one table
with target, measured value and verdict, and draws the plots of docs/benchmarks.md. `--quick` is judged by the same
targets, though they are meant for the full sizes, and its records go to a folder of their own, so that they never
replace those.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks import check, detector, discover, growth, learn, results, twenty
from benchmarks.children import say
from benchmarks.results import Line, show
from benchmarks.workloads import RULES

__all__ = ["main"]


class _Part(NamedTuple):
    """A part that can be run alone: measures, saves, and gives the lines to judge."""

    name: str
    run: Callable[[float], list[Line]]


def _detector(size: float) -> list[Line]:
    records: list[dict[str, Any]] = []
    for rule in RULES:
        records += detector.compare([rule], int(1_000_000 * size), (1000, 10_000))
        results.save("detector", records)
    return detector.compare_lines(records)


def _singles(size: float) -> list[Line]:
    records = detector.singles(RULES, int(100_000 * size))
    results.save("singles", records)
    return detector.single_lines(records)


def _twenty(size: float) -> list[Line]:
    return twenty.twenty_lines(twenty.run(int(1_000_000 * size), 10_000, threads=1))


def _growth(size: float) -> list[Line]:
    return growth.growth_lines(growth.growth(growth.GROWING, int(4_000_000 * size)))


def _checked(mode: str) -> Callable[[float], list[Line]]:
    def run(size: float) -> list[Line]:
        records = check.against_duckdb(RULES, int(1_000_000 * size), [mode], threads=1)
        results.save(f"check-{mode}", records)
        return check.check_lines(records)

    return run


def _dirty(size: float) -> list[Line]:
    record = check.dirty_and_clean(int(1_000_000 * size), threads=1)
    results.save("check-dirty", [record])
    return check.dirty_lines(record)


def _fastadc(size: float) -> list[Line]:
    return discover.fastadc_lines(discover.compare(int(10_000 * size), None, rounds=2))


def _discover_growth(size: float) -> list[Line]:
    return discover.discover_growth_lines(discover.growth([int(rows * size) for rows in discover.SIZES], None))


def _learn_tax(size: float) -> list[Line]:
    return learn.tax_lines(learn.compare_tax(int(learn.TAX_ROWS * size)))


def _learn_growth(size: float) -> list[Line]:
    return learn.growth_lines(learn.growth(tuple(int(rows * size) for rows in learn.GROWN)))


PARTS = (
    _Part("detector", _detector),
    _Part("singles", _singles),
    _Part("twenty", _twenty),
    _Part("check-count", _checked("count")),
    _Part("check-dirty", _dirty),
    _Part("check-list", _checked("list")),
    _Part("check-plain", _checked("plain")),
    _Part("growth", _growth),
    _Part("discover-fastadc", _fastadc),
    _Part("discover-growth", _discover_growth),
    _Part("learn-tax", _learn_tax),
    _Part("learn-growth", _learn_growth),
)


def main() -> None:
    """Runs the parts that are asked for."""
    names = [part.name for part in PARTS]
    parser = ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    parser.add_argument("--parts", default=",".join(names), help=f"of {', '.join(names)}")
    given = parser.parse_args()
    if given.quick:
        results.FOLDER = results.FOLDER / "quick"
    wanted = given.parts.split(",")
    if unknown := set(wanted) - set(names):
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    if (load := os.getloadavg()[0]) > 1:
        say(f"the machine is busy (load {load:.1f}): ratios hold, absolute times will be too long")
    lines: list[Line] = []
    for part in PARTS:
        if part.name in wanted:
            lines += part.run(0.1 if given.quick else 1.0)
    show("Benchmarks", lines)
    if not given.quick:
        from benchmarks.plots import draw

        draw()


if __name__ == "__main__":
    main()

"""Does an insert cost more when more rows are held? CPU per insert at 4,000,000 rows against that at 1,000,000.

    python -m benchmarks.growth --rows 4000000

One detector takes all rows in batches of 10,000. At each size two figures: `last`, the mean of the last 100,000
inserts before it, which is what one waits for but may miss the rare large merges; and `half`, that of the inserts that
made the table grow from half the size to it, which has its share of every merge. Both are judged. Pairs are output:
where a rule makes more pairs per insert in a larger table (phi9), the CPU of a pair, measured as what ten times as many
wrong values add to a table of a quarter of the rows, is taken off on both sides.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterable
from time import process_time
from typing import Any

from benchmarks import workloads
from benchmarks.children import call, say
from benchmarks.detector import _detector, _warm
from benchmarks.results import Line, save, show
from benchmarks.workloads import RULES

__all__ = ["growth", "main"]

TIMES = 1.5
"""The target: CPU per insert at the full size against that at a quarter of it."""
GROWING = ("phi7", "phi8", "phi9", "c6", "c7")
_BATCH = 10_000
_POINTS = 16
_MATTER = 1.0
"""Pairs per insert from which their cost is looked at."""


def grow(rule: str, rows: int, window: int) -> dict[str, Any]:
    """In a child: CPU and pairs up to each batch."""
    work = RULES[rule]
    table = workloads.table(work.table, rows, ["id", *work.columns])
    _warm(rule)
    detector = _detector(rule)
    seconds, pairs = [0.0], [0]
    began = process_time()
    for start in range(0, rows, _BATCH):
        detector.insert(table.slice(start, _BATCH))
        seconds.append(process_time() - began)
        pairs.append(detector.count(rule))
    points = []
    for part in range(1, _POINTS + 1):
        at = rows // _BATCH * part // _POINTS
        point: dict[str, Any] = {"rows": at * _BATCH}
        for which, since in (("last", at - window // _BATCH), ("half", at // 2)):
            since = max(0, since)
            inserts = (at - since) * _BATCH
            point[f"{which}_us"] = (seconds[at] - seconds[since]) / inserts * 1e6
            point[f"{which}_pairs"] = (pairs[at] - pairs[since]) / inserts
        points.append(point)
    return {"points": points}


def pair_cost(rule: str, rows: int) -> float:
    """Nanoseconds that one more pair costs: the same rows with ten times as many wrong values."""
    few, many = (
        min((call("detector.ours", rule=rule, rows=rows, batch=_BATCH, dirty=dirty) for _ in range(2)), key=_seconds)
        for dirty in (RULES[rule].dirty, RULES[rule].dirty * 10)
    )
    return max(0.0, (many["seconds"] - few["seconds"]) / RULES[rule].reported(many["pairs"] - few["pairs"]) * 1e9)


def growth(rules: Iterable[str], rows: int) -> list[dict[str, Any]]:
    """Every rule once; a quarter of the rows against all of them."""
    out = []
    for rule in rules:
        result = call("growth.grow", rule=rule, rows=rows, window=max(_BATCH, rows // 40))
        points = result["points"]
        quarter, full = points[_POINTS // 4 - 1], points[-1]
        cost = pair_cost(rule, rows // 40 * 10) if full["half_pairs"] >= _MATTER else 0.0
        record = {"rule": rule, "rows": rows, "ns_a_pair": cost, "peak_mb": result["peak_mb"], "points": points}
        for which in ("last", "half"):
            less = [point[f"{which}_us"] - point[f"{which}_pairs"] * cost / 1e3 for point in (quarter, full)]
            record[f"{which}_ratio_with_pairs"] = full[f"{which}_us"] / quarter[f"{which}_us"]
            record[f"{which}_ratio"] = less[1] / less[0]
        out.append(record)
        say(f"{rule}: last {record['last_ratio']:.2f}x, half {record['half_ratio']:.2f}x at four times the rows")
        save("growth", out)
    return out


def growth_lines(records: Iterable[dict[str, Any]]) -> list[Line]:
    """What is judged: both ratios, without what the pairs cost."""
    lines = []
    for one in records:
        for which, words in (("last", "last 2.5% of the inserts"), ("half", "last half of the inserts")):
            name = f"growth: {one['rule']}, {one['rows']:,} rows, {words}"
            lines.append(Line(name, "x a quarter of the rows", TIMES, one[f"{which}_ratio"]))
    return lines


def _seconds(result: dict[str, Any]) -> float:
    return float(result["seconds"])


def main() -> None:
    """Runs the rules and shows them."""
    parser = ArgumentParser(prog="python -m benchmarks.growth", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--rules", default=",".join(GROWING))
    given = parser.parse_args()
    show("Growth", growth_lines(growth(given.rules.split(","), given.rows)))


if __name__ == "__main__":
    main()

"""`Detector` against the baseline: CPU per rule and batch size, deletes, memory, single inserts.

    python -m benchmarks.detector --rows 1000000 --batches 1000,10000 --rules phi7,phi9

Each figure is of a fresh process, ours and the baseline's in turns; the clock (CPU of the whole process) starts after
both have compiled their kernels on a small table. `Detector` gets the key `id` and Arrow slices of the columns that the
rule reads; then a tenth of the rows is deleted by key. Promises: the pairs are those of `reference.json` after the
inserts and after the deletes, or the run fails.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterable, Sequence
from time import process_time
from typing import Any

from benchmarks import workloads
from benchmarks.children import call, say
from benchmarks.results import Line, save, show
from benchmarks.workloads import RULES

__all__ = ["compare", "main", "singles"]

TIMES, MEMORY_MB, SINGLE_US = 2.0, 600, 150.0
"""The targets: CPU against the baseline, peak memory, microseconds for an insert of one row."""
_WARM = 3000


def ours(rule: str, rows: int, batch: int, dirty: float | None = None) -> dict[str, Any]:
    """In a child: inserts in batches, then the deletes."""
    work = RULES[rule]
    table = workloads.table(work.table, rows, ["id", *work.columns], dirty)
    drops = workloads.deletes(rows)
    _warm(rule)
    detector = _detector(rule)
    began = process_time()
    found = 0
    for start in range(0, rows, batch):
        found += len(detector.insert(table.slice(start, batch)).added)
    inserted = process_time() - began
    pairs = detector.count(rule)
    assert found == pairs, "what was reported is what is counted"
    began = process_time()
    for start in range(0, len(drops), batch):
        found -= len(detector.delete(drops[start : start + batch].tolist()).removed)
    deleted = process_time() - began
    assert found == detector.count(rule), "what was reported is what is counted"
    return {
        "seconds": inserted,
        "pairs": work.ordered(pairs),
        "after_deletes": work.ordered(found),
        "delete_us": deleted / len(drops) * 1e6,
    }


def theirs(rule: str, rows: int, batch: int) -> dict[str, Any]:
    """In a child: the baseline's inserts."""
    from benchmarks.baseline import Stream

    work = RULES[rule]
    table = workloads.table(work.table, rows, work.columns)
    stream = Stream(work, {name: table[name].to_numpy() for name in work.columns})
    return {"seconds": stream.seconds(batch), "pairs": stream.pairs}


def single(rule: str, rows: int, form: str) -> dict[str, Any]:
    """In a child: one row at a time from the first to the last, as dicts or as Arrow slices."""
    work = RULES[rule]
    table = workloads.table(work.table, rows, ["id", *work.columns])
    given = table.to_pylist() if form == "dict" else [table.slice(at, 1) for at in range(rows)]
    _warm(rule)
    detector = _detector(rule)
    began = process_time()
    for row in given:
        detector.insert(row)
    seconds = process_time() - began
    return {"microseconds": seconds / rows * 1e6, "pairs": work.ordered(detector.count(rule))}


def compare(rules: Iterable[str], rows: int, batches: Sequence[int], rounds: int = 2) -> list[dict[str, Any]]:
    """Both systems in turns; of the rounds the least CPU of each counts, because noise only adds."""
    out = []
    for rule in rules:
        expected = workloads.reference(rule, rows)
        for batch in batches:
            took: dict[str, list[float]] = {"ours": [], "theirs": []}
            mine: dict[str, Any] = {}
            for _ in range(rounds):
                mine = call("detector.ours", rule=rule, rows=rows, batch=batch)
                other = call("detector.theirs", rule=rule, rows=rows, batch=batch)
                took["ours"].append(mine["seconds"])
                took["theirs"].append(other["seconds"])
                _require(rule, rows, mine["pairs"], other["pairs"])
                if expected:
                    _require(rule, rows, mine["pairs"], expected.pairs)
                    _require(rule, rows, mine["after_deletes"], expected.after_deletes)
            record = {
                "rule": rule,
                "rows": rows,
                "batch": batch,
                "ours_s": min(took["ours"]),
                "baseline_s": min(took["theirs"]),
                "ratio": min(took["ours"]) / min(took["theirs"]),
                "delete_us": mine["delete_us"],
                "peak_mb": mine["peak_mb"],
                "pairs": mine["pairs"],
                "after_deletes": mine["after_deletes"],
                "agrees_with_reference": expected is not None,
            }
            out.append(record)
            say(f"{rule} in batches of {batch}: {record['ratio']:.2f}x ({record['ours_s']:.2f} s)")
    return out


def singles(rules: Iterable[str], rows: int) -> list[dict[str, Any]]:
    """Inserts of one row at a time, in both forms."""
    out = []
    for rule in rules:
        expected = workloads.reference(rule, rows)
        for form in ("dict", "arrow"):
            result = call("detector.single", rule=rule, rows=rows, form=form)
            if expected:
                _require(rule, rows, result["pairs"], expected.pairs)
            out.append({"rule": rule, "rows": rows, "form": form, "microseconds": result["microseconds"]})
            say(f"{rule} one by one as {form}: {result['microseconds']:.0f} us")
    return out


def compare_lines(records: Iterable[dict[str, Any]]) -> list[Line]:
    """What is judged: CPU and memory."""
    lines = []
    for one in records:
        name = f"{one['rule']}, {one['rows']:,} rows, batches of {one['batch']:,}"
        lines.append(Line(f"inserts: {name}", "x baseline", TIMES, one["ratio"]))
        lines.append(Line(f"memory: {name}", "MB", MEMORY_MB, one["peak_mb"]))
    return lines


def single_lines(records: Iterable[dict[str, Any]]) -> list[Line]:
    """What is judged: microseconds for a row as a dict; as an Arrow slice they are told."""
    return [
        Line(
            f"one row at a time: {one['rule']}, {one['rows']:,} rows, {one['form']}",
            "us an insert",
            SINGLE_US,
            one["microseconds"],
        )
        for one in records
    ]


def _detector(rule: str) -> Any:
    from weever_stream.detect.detector import Detector
    from weever_stream.rules import parse_rule

    return Detector([parse_rule(RULES[rule].deny, name=rule)], key="id")


def _warm(rule: str) -> None:
    """Everything once on a small table: large and small batches, deletes."""
    work = RULES[rule]
    table = workloads.table(work.table, _WARM, ["id", *work.columns])
    detector = _detector(rule)
    for start, rows in ((0, 1000), (1000, 1000), (2000, 100), (2100, 1), (2101, 800)):
        detector.insert(table.slice(start, rows))
    detector.insert(table.slice(2901, 1).to_pylist())
    detector.delete(table["id"].slice(0, 1500).to_pylist())
    detector.delete(table["id"].slice(2000, 10).to_pylist())


def _require(rule: str, rows: int, found: int, expected: int) -> None:
    if found != expected:
        raise RuntimeError(f"{rule} at {rows:,} rows: {found:,} ordered pairs were found where there are {expected:,}")


def main() -> None:
    """Runs both parts and shows them."""
    parser = ArgumentParser(prog="python -m benchmarks.detector", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batches", default="1000,10000")
    parser.add_argument("--rules", default=",".join(RULES))
    parser.add_argument("--single-rows", type=int, default=100_000, help="rows that come one at a time; 0 for none")
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    rules, batches = given.rules.split(","), [int(batch) for batch in given.batches.split(",") if batch]
    compared = compare(rules, given.rows, batches, given.rounds)
    if compared:
        save("detector", compared)
    alone = singles(rules, given.single_rows) if given.single_rows else []
    if alone:
        save("singles", alone)
    show("Detector", [*compare_lines(compared), *single_lines(alone)])


if __name__ == "__main__":
    main()

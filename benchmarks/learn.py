"""`Learner` against discovery from scratch, deletes against inserts, and a change at ten times the rows.

    python -m benchmarks --parts learn-tax,learn-growth
    WEEVER_BENCHMARKS_AIRPORT=FOLDER python -m benchmarks.learn

The tax table is that of `benchmarks.discover`: without its id, every column with itself by six operators, exact. Rows
are added to a learner that holds the others; from scratch is `find_rules` over all rows, its space included. Both are
CPU times of one process, kernels loaded before, the least of the rounds. Afterwards both must have the same rules.

The airport tables are public (IncDC's example); FOLDER has airport_original.csv, airport_incremental.csv and
DC_airport_example.txt, whose rules give the comparisons that are looked at.
"""

from __future__ import annotations

import json
import os
import re
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Any

from benchmarks import workloads
from benchmarks.children import call, say
from benchmarks.discover import COLUMNS
from benchmarks.results import Line, save, show

if TYPE_CHECKING:
    import pyarrow as pa

    from weever_stream.learn import Learner

__all__ = ["AIRPORT", "GROWN", "TAX_ROWS", "airport_lines", "compare_airport", "compare_tax", "growth", "growth_lines"]
__all__ += ["main", "tax_lines"]

TAX_ROWS, GROWN, CHANGED = 200_000, (100_000, 1_000_000), 1000
AIRPORT = 30_000
SHARES = {0.1: 1 / 5, 0.3: 1 / 3}
"""Shares of the rows that are added, and of the CPU of discovery that it may take."""
DELETES, GROWTH = 1.0, 2.0
_ROUNDS = 3
_OPS = {"==": "=", "<>": "!=", "<": "<", ">": ">", "<=": "<=", ">=": ">="}


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = process_time()
    found = work()
    return found, process_time() - began


def _warm(table: pa.Table, **options: Any) -> None:
    """Loads the kernels of both, with and without deletes."""
    from weever_stream.learn import Learner

    learner = Learner(table.slice(0, 1500), small=100, **options)
    learner.insert(table.slice(1500, 200))
    learner.delete(list(range(1, 100)))
    _scratch(table.slice(0, 1500), learner)


def _scratch(table: pa.Table, learner: Learner) -> set[str]:
    """Discovery over all rows, in the learner's comparisons: the fingerprints of the rules."""
    import numpy as np

    from weever_stream.discover.hydra import find_rules
    from weever_stream.discover.predicates import space_over

    space = space_over(table, learner._space.comparisons)
    outcome = find_rules(space, scanned=-1 if table.num_rows < 5000 else 60_000_000)
    assert outcome.exact
    return {space.rule(np.flatnonzero(rule)).rule.fingerprint for rule in outcome.rules}


def _scratch_cpu(table: pa.Table, learner: Learner) -> tuple[set[str], float]:
    """The same, and the CPU of finding; naming the rules is no part of it."""
    from weever_stream.discover.hydra import find_rules
    from weever_stream.discover.predicates import space_over

    def find() -> None:
        find_rules(space_over(table, learner._space.comparisons))

    return _scratch(table, learner), min(_timed(find)[1] for _ in range(_ROUNDS))


def _added(table: pa.Table, held: int, more: int, options: dict[str, Any]) -> dict[str, Any]:
    """Rows added to a learner, and the same from scratch."""
    import pyarrow as pa

    from weever_stream.learn import Learner

    times = []
    for _ in range(_ROUNDS):
        learner = Learner(table.slice(0, held), **options)
        before = len(learner.rules)
        learned, spent = _timed(lambda: learner.insert(table.slice(held, more)))  # noqa: B023
        times.append(spent)
    truth, scratch = _scratch_cpu(pa.concat_tables([table.slice(0, held + more)]).combine_chunks(), learner)
    mine = {rule.fingerprint for rule in learner.rules}
    return {
        "rows": held,
        "added": more,
        "learn_s": min(times),
        "scratch_s": scratch,
        "rules_before": before,
        "rules": len(mine),
        "came": len(learned.added),
        "went": len(learned.dropped),
        "differ": len(mine ^ truth),
    }


def tax(rows: int, share: float) -> dict[str, Any]:
    """In a child: a share of the rows added to the tax table."""
    more = int(rows * share)
    table = workloads.table("tax", rows + more, COLUMNS, None)
    options = {"cross": False}
    _warm(table, **options)
    return {**_added(table, rows, more, options), "share": share}


def deletes(rows: int) -> dict[str, Any]:
    """In a child: one row in a hundred comes, and the same ones go again, five times."""
    from weever_stream.learn import Learner

    more = rows // 100
    table = workloads.table("tax", rows + 5 * more, COLUMNS, None)
    _warm(table, cross=False)
    learner = Learner(table.slice(0, rows), cross=False)
    before = {rule.fingerprint for rule in learner.rules}
    coming = going = 0.0
    for turn in range(5):
        part = table.slice(rows + turn * more, more)
        coming += _timed(lambda: learner.insert(part))[1]  # noqa: B023
        keys = list(range(rows + turn * more + 1, rows + (turn + 1) * more + 1))
        going += _timed(lambda: learner.delete(keys))[1]  # noqa: B023
    after = {rule.fingerprint for rule in learner.rules}
    return {"rows": rows, "each": more, "insert_s": coming, "delete_s": going, "differ": len(before ^ after)}


def grown(rows: int, batches: int = 10) -> dict[str, Any]:
    """In a child: a thousand rows added to a learner that holds so many, the middle one of some batches."""
    from weever_stream.learn import Learner

    table = workloads.table("tax", rows + batches * CHANGED, COLUMNS, None)
    _warm(table, cross=False)
    learner, start = _timed(lambda: Learner(table.slice(0, rows), cross=False))
    spent = [
        _timed(lambda: learner.insert(table.slice(rows + at * CHANGED, CHANGED)))[1]  # noqa: B023
        for at in range(batches)
    ]
    sets = len(learner._keeper.sets)
    return {"rows": rows, "cpu_s": sorted(spent)[batches // 2], "start_s": start, "sets": sets, "each": spent}


def airport(folder: str, share: float) -> dict[str, Any]:
    """In a child: rows of the second airport table added to the first, in the space of the published rules."""
    import pyarrow as pa

    from weever_stream.learn import Learner
    from weever_stream.rules import parse_rule

    one, other = (_airports(Path(folder) / f"airport_{name}.csv") for name in ("original", "incremental"))
    rules = _published(Path(folder) / "DC_airport_example.txt")
    table = pa.concat_tables([one, other]).combine_chunks()
    _warm(table, rules=rules)
    more = min(int(one.num_rows * share), other.num_rows)
    found = _added(table, one.num_rows, more, {"rules": rules})
    first = {rule.fingerprint for rule in Learner(one, rules=rules).rules}
    differ = first ^ {parse_rule(rule).fingerprint for rule in rules}
    return {**found, "share": share, "published": len(rules), "published_differ": len(differ)}


def _airports(path: Path) -> pa.Table:
    from weever_stream.check.readers import Wanted, read_names, read_table
    from weever_stream.check.sources import find_files

    files = find_files([path])
    names = read_names(files, "latin1")
    table = read_table(files, Wanted(frozenset(names), encoding="latin1"))
    return table.rename_columns([name.split("(")[0] for name in table.column_names])


def _published(path: Path) -> list[str]:
    """The rules of the file in our language."""
    found = []
    for line in path.read_text(encoding="latin1").splitlines():
        said = re.findall(r"t0\.(\w+)\(\w+\) (\S+) t1\.(\w+)\(\w+\)", line)
        if said:
            found.append(" and ".join(f"t.{left} {_OPS[op]} s.{right}" for left, op, right in said))
    return found


def compare_tax(rows: int) -> list[dict[str, Any]]:
    """Both shares, and the deletes."""
    records = [call("learn.tax", rows=rows, share=share) for share in SHARES]
    records.append(call("learn.deletes", rows=rows))
    for one in records:
        say(json.dumps(one))
    save("learn-tax", records)
    return records


def growth(sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    """The same change at different numbers of rows."""
    records = [call("learn.grown", rows=rows) for rows in sizes]
    for one in records:
        say(json.dumps(one))
    save("learn-growth", records)
    return records


def compare_airport(folder: str) -> list[dict[str, Any]]:
    """Both shares, and the whole second table."""
    records = [call("learn.airport", folder=str(Path(folder).resolve()), share=share) for share in (*SHARES, 1.0)]
    for one in records:
        say(json.dumps(one))
    save("learn-airport", records)
    return records


def _share_lines(table: str, one: dict[str, Any]) -> list[Line]:
    name = f"learn: {table}, {one['rows']:,} rows and {one['added']:,} more"
    return [
        Line(f"{name}, CPU", "x discovery", SHARES.get(one["share"]), one["learn_s"] / one["scratch_s"]),
        Line(f"{name}, rules that differ", "rules", 0, one["differ"]),
    ]


def tax_lines(records: list[dict[str, Any]]) -> list[Line]:
    """Shares of the CPU of discovery, and deletes as times their insertion."""
    *shares, gone = records
    told = [line for one in shares for line in _share_lines("tax", one)]
    name = f"learn: tax, {gone['rows']:,} rows, {gone['each']:,} deleted"
    told.append(Line(f"{name}, CPU", "x insertion", DELETES, gone["delete_s"] / gone["insert_s"]))
    return [*told, Line(f"{name}, rules that differ", "rules", 0, gone["differ"])]


def growth_lines(records: list[dict[str, Any]]) -> list[Line]:
    """CPU at the most rows, as times that at the fewest."""
    first, last = records[0], records[-1]
    name = f"learn: {CHANGED:,} rows added at {last['rows']:,} against {first['rows']:,}"
    return [Line(name, "x CPU", GROWTH, last["cpu_s"] / first["cpu_s"])]


def airport_lines(records: list[dict[str, Any]]) -> list[Line]:
    """Shares of the CPU of discovery."""
    return [line for one in records for line in _share_lines("airport", one)]


def main() -> None:
    """Runs the airport tables, where there are any, and the others at a size that is asked for."""
    parser = ArgumentParser(prog="python -m benchmarks.learn", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, help="also the tax table, with so many rows")
    given = parser.parse_args()
    folder = os.environ.get("WEEVER_BENCHMARKS_AIRPORT")
    if not folder:
        say("the airport tables are left out: WEEVER_BENCHMARKS_AIRPORT names no folder")
    told = airport_lines(compare_airport(folder)) if folder else []
    if given.rows:
        told += tax_lines(compare_tax(given.rows))
    show("learn", told)


if __name__ == "__main__":
    main()

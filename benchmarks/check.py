"""`weever check` against DuckDB, both as whole commands from the same Parquet file with the same number of threads.

    python -m benchmarks.check --rows 1000000 --threads 1

CPU is user and system time of the command as the kernel counts it, all threads, less start-up. DuckDB's start-up is the
same command on an empty table. Ours loads numba and its kernels only when there is something to count or list, so our
start-up is the same command on 3,000 rows with 5% wrong values, which loads them; the ratio with our start-up on the
empty table, where that load counts as work, is told beside it. Commands run in turns, and of the rounds the least of
each counts. Modes:

    count   `--mode count --format json`          DuckDB: `count(*)` of the self-join
    list    `--mode list --format csv --output …` DuckDB: `copy (join) to csv` with the same content (see `duck`)
    plain   the same command                      DuckDB: plain columns, no violation ids, no JSON: told, not judged

phi10 is put to DuckDB as one query for each state. Promises: both find the pairs of `reference.json`, or the run fails.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq

from benchmarks import workloads
from benchmarks.children import ROOT, Spent, command, say
from benchmarks.results import Line, save, show
from benchmarks.workloads import RULES, Workload

__all__ = ["against_duckdb", "counts_of", "dirty_and_clean", "empty", "main", "small", "weever"]

COUNTING = {"phi7": 1.2, "phi8": 1.2, "phi9": 1 / 5, "phi10": 1 / 2, "phi11": 1 / 5, "c6": 1 / 2, "c7": 1 / 2}
"""The targets for counting: our CPU as a share of DuckDB's."""
LISTING = 1.0
DIRTY, DIRTY_TIMES = 0.05, 3.0
"""A table with 5% wrong rates may take three times as long to count as one with none."""
_LOOPS = {"phi10": "state"}
_FEW = (3000, 0.05)
"""Rows and share of wrong values of the table that start-up is measured on."""
_LEAST = 0.005
"""Seconds: the kernel's clock is not good for less."""


def weever(rules: Path, data: Path, mode: str, threads: int, output: Path, form: str = "json") -> Spent:
    """The command of this tree."""
    line = [sys.executable, "-m", "weever_stream.cli", "check", rules, data, "--mode", mode, "--format", form]
    return command([*line, "--threads", str(threads), "--no-progress", "--output", output], expect=(0, 1, 2))


def duckdb(rule: Workload, data: Path, threads: int, content: str | None, output: Path) -> Spent:
    """DuckDB's command."""
    ask = {
        "rule": rule.name,
        "predicates": rule.predicates,
        "columns": rule.columns,
        "symmetric": rule.symmetric,
        "data": str(data),
        "threads": threads,
        "content": content,
        "output": str(output),
        "loop": _LOOPS.get(rule.name),
    }
    return command([sys.executable, ROOT / "benchmarks" / "duck.py", json.dumps(ask)])


def empty(table: str) -> Path:
    """A Parquet file with the columns of a table and no rows."""
    path = workloads.data_folder() / f"{table}-empty.parquet"
    if not path.exists():
        pq.write_table(pq.read_schema(workloads.parquet(table, 1000)).empty_table(), path)
    return path


def small(table: str) -> Path:
    """A table on which everything that a command needs is loaded, and hardly anything is done."""
    return workloads.parquet(table, *_FEW)


def counts_of(rules: Path, data: Path, threads: int, output: Path) -> dict[str, int]:
    """The violations of each rule by `--mode count`."""
    weever(rules, data, "count", threads, output)
    return {one["name"]: one["violations"] for one in json.loads(output.read_text())["rules"]}


def against_duckdb(rules: Iterable[str], rows: int, modes: Iterable[str], threads: int, rounds: int = 2) -> list[Any]:
    """Every rule in every mode, both commands in turns."""
    records = []
    for mode in modes:
        for name in rules:
            with TemporaryDirectory(dir=workloads.data_folder()) as folder:
                record = _compared(RULES[name], rows, mode, threads, rounds, Path(folder))
            records.append(record)
            say(f"{mode} {name}: {record['ours_s']:.2f} s, DuckDB {record['duckdb_s']:.2f} s: {record['ratio']:.2f}x")
    return records


def _compared(rule: Workload, rows: int, mode: str, threads: int, rounds: int, folder: Path) -> dict[str, Any]:
    data, nothing = workloads.parquet(rule.table, rows), empty(rule.table)
    content = {"count": None, "list": "same", "plain": "plain"}[mode]
    how, form = ("count", "json") if mode == "count" else ("list", "csv")
    rules, out, other = _written(rule, folder), folder / "ours", folder / "duckdb"
    few = small(rule.table)
    weever(rules, few, how, threads, out, form)  # compiles, where this tree has not been run before
    spent: dict[str, list[Spent]] = {"ours": [], "start": [], "cold": [], "duckdb": [], "duckdb_start": []}
    for _ in range(rounds):
        spent["cold"].append(weever(rules, nothing, how, threads, out, form))
        spent["start"].append(weever(rules, few, how, threads, out, form))
        spent["ours"].append(weever(rules, data, how, threads, out, form))
        spent["duckdb_start"].append(duckdb(rule, nothing, threads, content, other))
        spent["duckdb"].append(duckdb(rule, data, threads, content, other))
    found = json.loads(out.read_text())["rules"][0]["violations"] if mode == "count" else _lines(out) - 1
    theirs = int(spent["duckdb"][-1].output)
    if mode == "count" and rule.symmetric and any(op == "!=" for _, op, _ in rule.predicates):
        theirs //= 2
    expected = workloads.reference(rule.name, rows)
    if found != theirs or (expected and rule.ordered(found) != expected.pairs):
        raise RuntimeError(f"{rule.name}: weever found {found:,} pairs, DuckDB {theirs:,}, there are {expected}")
    cpu = {which: min(one.cpu for one in some) for which, some in spent.items()}
    ours = max(_LEAST, cpu["ours"] - cpu["start"])
    duck = max(_LEAST, cpu["duckdb"] - cpu["duckdb_start"])
    return {
        "rule": rule.name,
        "rows": rows,
        "mode": mode,
        "threads": threads,
        "ours_s": ours,
        "duckdb_s": duck,
        "ratio": ours / duck,
        "ratio_with_loading": max(_LEAST, cpu["ours"] - cpu["cold"]) / duck,
        "start_s": cpu["start"],
        "empty_s": cpu["cold"],
        "duckdb_start_s": cpu["duckdb_start"],
        "pairs": found,
        "peak_mb": spent["ours"][-1].peak_mb,
        "duckdb_peak_mb": spent["duckdb"][-1].peak_mb,
    }


def dirty_and_clean(rows: int, threads: int, rounds: int = 3) -> dict[str, Any]:
    """phi10 counted on a table without wrong values and on one with 5%."""
    rule = RULES["phi10"]
    with TemporaryDirectory() as folder:
        rules, out = _written(rule, Path(folder)), Path(folder) / "out"
        took: dict[float, float] = {}
        pairs: dict[float, int] = {}
        few = small(rule.table)
        start = min(weever(rules, few, "count", threads, out).cpu for _ in range(rounds))
        for dirty in (0.0, DIRTY):
            data = workloads.parquet(rule.table, rows, dirty)
            spent = min(weever(rules, data, "count", threads, out).cpu for _ in range(rounds))
            took[dirty] = max(_LEAST, spent - start)
            pairs[dirty] = json.loads(out.read_text())["rules"][0]["violations"]
    say(f"phi10 clean {took[0.0]:.2f} s, dirty {took[DIRTY]:.2f} s, {pairs[DIRTY]:,} pairs")
    return {
        "rows": rows,
        "threads": threads,
        "clean_s": took[0.0],
        "dirty_s": took[DIRTY],
        "ratio": took[DIRTY] / took[0.0],
        "clean_pairs": pairs[0.0],
        "dirty_pairs": pairs[DIRTY],
    }


def check_lines(records: Iterable[dict[str, Any]]) -> list[Line]:
    """What is judged: our CPU as a share of DuckDB's."""
    lines = []
    for one in records:
        target = {"count": COUNTING[one["rule"]], "list": LISTING, "plain": None}[one["mode"]]
        lines.append(
            Line(f"check {one['mode']}: {one['rule']}, {one['rows']:,} rows", "x DuckDB", target, one["ratio"])
        )
    return lines


def dirty_lines(record: dict[str, Any]) -> list[Line]:
    """What is judged: dirty against clean."""
    name = f"check count: phi10, {record['rows']:,} rows, 5% dirty ({record['dirty_pairs']:,} pairs)"
    return [Line(name, "x clean", DIRTY_TIMES, record["ratio"])]


def _written(rule: Workload, folder: Path) -> Path:
    path = folder / "rules.yaml"
    path.write_text(f"table: {rule.table}\nkey: id\nrules:\n  - name: {rule.name}\n    deny: {rule.deny}\n")
    return path


def _lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(piece.count(b"\n") for piece in iter(lambda: file.read(1 << 20), b""))


def main() -> None:
    """Runs the modes and shows them."""
    parser = ArgumentParser(prog="python -m benchmarks.check", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rules", default=",".join(RULES))
    parser.add_argument("--modes", default="count,list,plain")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    lines = []
    for mode in given.modes.split(","):
        records = against_duckdb(given.rules.split(","), given.rows, [mode], given.threads, given.rounds)
        save(f"check-{mode}", records)
        lines += check_lines(records)
        if mode == "count":
            dirty = dirty_and_clean(given.rows, given.threads)
            save("check-dirty", [dirty])
            lines += dirty_lines(dirty)
    show("check", lines)


if __name__ == "__main__":
    main()

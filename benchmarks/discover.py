"""`discover` against Desbordante's FastADC, and against itself on larger tables.

    python -m benchmarks --parts discover-fastadc,discover-growth
    python -m benchmarks.discover --sizes 10000,100000

FastADC runs in the Python that the variable FASTADC_PYTHON names (it needs desbordante, pandas and pyarrow), else in
this one. The table is the tax workload without its id, the space every column with itself by six operators, the rules
exact. Both sides are processes of their own; CPU is that of finding rules in a table that is in memory, without imports
and the compilation of kernels; the peak is that of the whole process as the kernel counts it. Both are run in turns and
the least of the rounds counts. FastADC runs with one shard (shard_length 0: fewest passes, most memory) and with 350,
its default: asked for a table of three rows without options, it says that a shard_length of 350 is too much for them.
The rule sets must be equal when rules that are the same, exchanged or implied are taken away on either side.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

from benchmarks import workloads
from benchmarks.children import ROOT, call, command, say
from benchmarks.results import Line, save, show

__all__ = ["SIZES", "against_fastadc", "compare", "discover_growth_lines", "fastadc_lines", "growth", "main"]

COLUMNS = ("areacode", "phone", "city", "state", "zip", "haschild", "childexemp", "salary", "rate")
SIZES = (10_000, 100_000, 1_000_000)
CPU, MEMORY, GROWTH = 0.5, 1 / 3, 150.0
"""The targets: shares of FastADC's CPU and peak, and CPU at 100 times the rows."""


def find(rows: int, dirty: float | None) -> dict[str, Any]:
    """In a child: the rules of the tax table, and the CPU to find them."""
    import numpy as np

    from weever_stream.discover.hydra import find_rules
    from weever_stream.discover.predicates import Options, space_of
    from weever_stream.rules import write_rule

    table = workloads.table("tax", rows, COLUMNS, dirty)
    options = Options(cross=False)
    for scanned in (10**9, -1):  # loads the kernels of both ways
        find_rules(space_of(table.slice(0, 200), options), scanned=scanned)
    began = process_time()
    space = space_of(table, options)
    outcome = find_rules(space)
    spent = process_time() - began
    rules = [write_rule(space.rule(np.flatnonzero(rule)).rule) for rule in outcome.rules]
    return {"rows": rows, "cpu_s": spent, "exact": outcome.exact, "pairs_seen": outcome.evidence.pairs, "rules": rules}


def against_fastadc(python: str, rows: int, dirty: float | None, shard: int, rounds: int = 3) -> dict[str, Any]:
    """Both, in turns, and what their rule sets do not share."""
    data = workloads.parquet("tax", rows, dirty)
    ours, theirs = [], []
    with TemporaryDirectory(dir=workloads.data_folder()) as folder:
        output = Path(folder) / "rules.txt"
        script = ROOT / "benchmarks" / "fastadc.py"
        for _ in range(rounds):
            ours.append(call("discover.find", rows=rows, dirty=dirty))
            spent = command([python, script, data, ",".join(COLUMNS), output, str(shard)])
            theirs.append({**json.loads(spent.output.splitlines()[-1]), "peak_mb": spent.peak_mb})
        listed = output.read_text(encoding="utf-8").splitlines()
    only_ours, only_theirs = _differences(ours[0]["rules"], listed)
    best = {
        "rows": rows,
        "dirty": dirty,
        "shard_length": shard,
        "ours_s": min(one["cpu_s"] for one in ours),
        "ours_mb": min(one["peak_mb"] for one in ours),
        "fastadc_s": min(one["cpu_s"] for one in theirs),
        "fastadc_mb": min(one["peak_mb"] for one in theirs),
        "ours_rules": len(ours[0]["rules"]),
        "fastadc_rules": len(listed),
        "only_ours": only_ours,
        "only_fastadc": only_theirs,
        "version": theirs[0]["version"],
    }
    say(json.dumps(best))
    return best


def _differences(ours: list[str], theirs: list[str]) -> tuple[list[str], list[str]]:
    """Rules of each side that the other neither has nor implies."""
    from weever_stream.rules import parse_rule

    mine, others = ([parse_rule(text) for text in some] for some in (ours, theirs))

    def boxes(rules: list[Any]) -> list[dict[str, int]]:
        both = []
        for rule in rules:
            box = {p.columns[0].name: p.op.value for p in rule.predicates}
            both += [box, {p.columns[0].name: p.op.flipped().value for p in rule.predicates}]
        return both

    def missing(rules: list[Any], known: list[dict[str, int]]) -> list[str]:
        left = []
        for rule, box in zip(rules, boxes(rules)[::2], strict=True):
            implied = any(all(box.get(name, 7) & ~op == 0 for name, op in one.items()) for one in known)
            if not implied:
                left.append(" and ".join(f"{p.columns[0].name} {p.op.symbol}" for p in rule.predicates))
        return left

    return missing(mine, boxes(others)), missing(others, boxes(mine))


def growth(sizes: list[int], dirty: float | None) -> list[dict[str, Any]]:
    """CPU and memory by the number of rows."""
    found = []
    for rows in sizes:
        one = call("discover.find", rows=rows, dirty=dirty)
        one["rules"] = len(one["rules"])
        one["dirty"] = dirty
        say(json.dumps(one))
        found.append(one)
    save("discover-growth", found)
    return found


def fastadc_lines(both: list[dict[str, Any]]) -> list[Line]:
    """Shares of FastADC's CPU and memory, and rules that only one side has."""
    told = []
    for compared in both:
        rows = f"discover: tax, {compared['rows']:,} rows, shard_length {compared['shard_length']}"
        # The targets are for one shard: what FastADC needs for the whole table at once.
        judged = compared["shard_length"] == 0
        told += [
            Line(f"{rows}, CPU", "x FastADC", CPU if judged else None, compared["ours_s"] / compared["fastadc_s"]),
            Line(
                f"{rows}, peak", "x FastADC", MEMORY if judged else None, compared["ours_mb"] / compared["fastadc_mb"]
            ),
            Line(f"{rows}, of one side only", "rules", 0, len(compared["only_ours"]) + len(compared["only_fastadc"])),
        ]
    return told


def discover_growth_lines(grown: list[dict[str, Any]]) -> list[Line]:
    """CPU at the most rows, as times that at the fewest."""
    first, last = grown[0], grown[-1]
    times = last["rows"] / first["rows"]
    name = f"discover: tax, {first['rows']:,} to {last['rows']:,} rows"
    return [Line(name, "x CPU", GROWTH * times / 100, last["cpu_s"] / first["cpu_s"])]


def fastadc_python() -> str | None:
    """A Python that has desbordante, if there is one."""
    return os.environ.get("FASTADC_PYTHON") or (sys.executable if _has_desbordante() else None)


def compare(rows: int, dirty: float | None, rounds: int) -> list[dict[str, Any]]:
    """Both with one shard and with FastADC's default; nothing where desbordante is not installed."""
    python = fastadc_python()
    if not python:
        say("desbordante is not installed: FastADC is left out (see FASTADC_PYTHON)")
        return []
    both = [against_fastadc(python, rows, dirty, shard, rounds) for shard in (0, 350)]
    save("discover-fastadc", both)
    return both


def main() -> None:
    """Runs both parts and shows them."""
    parser = ArgumentParser(prog="python -m benchmarks.discover", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--dirty", type=float, default=None, help="the share of wrong values; default: the workload's")
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    told = fastadc_lines(compare(given.rows, given.dirty, given.rounds))
    if sizes := [int(size) for size in given.sizes.split(",") if size]:
        told += discover_growth_lines(growth(sizes, given.dirty))
    show("discover", told)


def _has_desbordante() -> bool:
    from importlib.util import find_spec

    return find_spec("desbordante") is not None


if __name__ == "__main__":
    main()

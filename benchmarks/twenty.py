"""Twenty rules at once against the sum of each alone, over the tax table: what sharing is worth.

    python -m benchmarks.twenty --rows 1000000 --batch 10000

Eleven families: dependencies that share their left side, keys, and order rules within a group. In `Detector` CPU is
counted as in `benchmarks.detector`; alone, every rule pays for storage and keys again, as twenty detectors would. In
`check` it is that of whole commands, less the start-up of the same command on a small table. Promises: a rule's count
is the same alone, together, and in both engines, or the run fails.
"""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

from benchmarks import workloads
from benchmarks.check import counts_of, small, weever
from benchmarks.children import call, say
from benchmarks.results import Line, save, show

__all__ = ["TWENTY", "detector_share", "main", "rule_file"]

SHARE = 0.6
"""The target: together at most this share of the sum."""
_TABLE, _KEY = "tax", "id"
_WARM = 5000

TWENTY: dict[str, str] = {
    # one family: the same zip
    "zip_city": "fd: zip -> city",
    "zip_state": "fd: zip -> state",
    "zip_rate_rises": "order: {by: salary, of: rate, within: zip}",
    # the same areacode and phone
    "number_unique": "unique: [areacode, phone]",
    "number_zip": "fd: areacode, phone -> zip",
    "number_salary": "fd: areacode, phone -> salary",
    "number_rate": "fd: areacode, phone -> rate",
    # the same phone
    "phone_unique": "unique: [phone]",
    "phone_city": "fd: phone -> city",
    "phone_state": "fd: phone -> state",
    "phone_zip": "fd: phone -> zip",
    # the same areacode
    "areacode_state": "fd: areacode -> state",
    "areacode_rate_rises": "order: {by: salary, of: rate, within: areacode}",
    # families of one rule each
    "id_unique": "unique: [id]",
    "city_state": "fd: city -> state",
    "exemption": "fd: state, haschild -> childexemp",
    "exemption_in_zip": "fd: zip, haschild -> childexemp",
    "rate_in_state": "fd: state, salary -> rate",
    "rate_in_zip": "fd: zip, salary -> rate",
    "state_rate_rises": "order: {by: salary, of: rate, within: state}",
}


def rule_file(names: list[str] | None = None) -> str:
    """A rule file of some of the twenty, or of all."""
    rules = "\n".join(f"  - name: {name}\n    {TWENTY[name]}" for name in names or TWENTY)
    return f"table: {_TABLE}\nkey: {_KEY}\nrules:\n{rules}\n"


def detect(names: list[str], rows: int, batch: int) -> dict[str, Any]:
    """In a child: one detector with some of the rules, all rows in batches."""
    from weever_stream.detect.detector import Detector
    from weever_stream.rules import read_rules

    with TemporaryDirectory() as folder:
        path = Path(folder) / "rules.yaml"
        path.write_text(rule_file(names))
        rules = read_rules(path)
    columns = sorted({name for rule in rules.rules for name in rule.columns} | {_KEY})
    table = workloads.table(_TABLE, rows, columns)
    warm = Detector(rules)
    for start in range(0, _WARM, 1000):
        warm.insert(table.slice(start, 1000))
    detector = Detector(rules)
    began = process_time()
    for start in range(0, rows, batch):
        detector.insert(table.slice(start, batch))
    seconds = process_time() - began
    return {"seconds": seconds, "counts": {rule.name: detector.count(rule.name) for rule in rules.rules}}


def detector_share(rows: int, batch: int) -> dict[str, Any]:
    """All together, each alone, and all together again, so that a slow phase of the machine shows."""
    names = list(TWENTY)
    first = call("twenty.detect", names=names, rows=rows, batch=batch)
    alone = {}
    for name in names:
        one = call("twenty.detect", names=[name], rows=rows, batch=batch)
        if one["counts"] != {name: first["counts"][name]}:
            raise RuntimeError(f"{name} has {one['counts'][name]} violations alone, {first['counts'][name]} together")
        alone[name] = one["seconds"]
        say(f"{name} alone: {one['seconds']:.2f} s, {one['counts'][name]:,} violations")
    again = call("twenty.detect", names=names, rows=rows, batch=batch)
    together = min(first["seconds"], again["seconds"])
    say(f"Detector, twenty together: {together:.2f} s of {sum(alone.values()):.2f} s")
    return {
        "engine": "Detector",
        "rows": rows,
        "batch": batch,
        "together_s": together,
        "alone_s": sum(alone.values()),
        "share": together / sum(alone.values()),
        "each_s": alone,
        "violations": first["counts"],
        "peak_mb": max(first["peak_mb"], again["peak_mb"]),
    }


def check_share(rows: int, mode: str, threads: int, expected: dict[str, int] | None) -> dict[str, Any]:
    """The same for the command, in mode `count`, or `list` with text that shows 20 violations a rule."""
    data, few = workloads.parquet(_TABLE, rows), small(_TABLE)
    with TemporaryDirectory() as folder:
        spent = []
        for names in (list(TWENTY), *([name] for name in TWENTY), list(TWENTY)):
            rules = Path(folder) / "rules.yaml"
            rules.write_text(rule_file(names))
            out = Path(folder) / "out"
            start = min(weever(rules, few, mode, threads, out, form="text").cpu for _ in range(2))
            run = weever(rules, data, mode, threads, out, form="text")
            spent.append(run.cpu - start)
            if expected and mode == "count":
                found = counts_of(rules, data, threads, out)
                if found != {name: expected[name] for name in names}:
                    raise RuntimeError(f"check and Detector do not agree about {names}")
    together, alone = min(spent[0], spent[-1]), sum(spent[1:-1])
    say(f"check --mode {mode}, twenty together: {together:.2f} s of {alone:.2f} s")
    return {
        "engine": f"check --mode {mode}",
        "rows": rows,
        "threads": threads,
        "together_s": together,
        "alone_s": alone,
        "share": together / alone,
        "each_s": dict(zip(TWENTY, spent[1:-1], strict=True)),
    }


def twenty_lines(records: list[dict[str, Any]]) -> list[Line]:
    """What is judged: the share of the sum."""
    return [
        Line(f"twenty rules at once: {one['engine']}, {one['rows']:,} rows", "of the sum alone", SHARE, one["share"])
        for one in records
    ]


def run(rows: int, batch: int, threads: int) -> list[dict[str, Any]]:
    """Both engines; saved as each is done."""
    records = [detector_share(rows, batch)]
    save("twenty", records)
    for mode in ("count", "list"):
        records.append(check_share(rows, mode, threads, records[0]["violations"]))
        save("twenty", records)
    return records


def main() -> None:
    """Runs all and shows it."""
    parser = ArgumentParser(prog="python -m benchmarks.twenty", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    show("Twenty rules", twenty_lines(run(given.rows, given.batch, given.threads)))


if __name__ == "__main__":
    main()

"""Writes docs/benchmarks.md from the kept results: no number is typed by hand, and each stands with its command.

    python -m benchmarks.page

Between `<!-- part: NAME -->` and `<!-- end -->` the page is written anew; the words around are kept. A part that was
never run says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benchmarks.check import check_lines, dirty_lines
from benchmarks.children import ROOT
from benchmarks.detector import compare_lines, single_lines
from benchmarks.discover import discover_growth_lines, fastadc_lines
from benchmarks.growth import growth_lines
from benchmarks.learn import airport_lines, tax_lines
from benchmarks.learn import growth_lines as learn_growth_lines
from benchmarks.limits import FLAT, MEASURES, load_lines, quarters, size_lines, soak_lines
from benchmarks.results import Line, load, number
from benchmarks.stream import against_lines, middle, share, snapshot_lines, stream_growth_lines
from benchmarks.twenty import TWENTY, twenty_lines

__all__ = ["write"]

PAGE = ROOT / "docs" / "benchmarks.md"
_PART = re.compile(r"(<!-- part: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
Records = list[dict[str, Any]]


def write() -> None:
    """Fills in every part of the page."""
    text = PAGE.read_text()
    PAGE.write_text(_PART.sub(lambda part: part[1] + _PARTS[part[2]]() + part[3], text))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _shown(part: str, body: Callable[[Records], str]) -> Callable[[], str]:
    """The part's table under its command; or that it was never run."""

    def made() -> str:
        found = load(part)
        if found is None:
            return "Not run yet.\n"
        return f"```\n{found['command']}\n```\n\n{body(found['records'])}"

    return made


def _detector(records: Records) -> str:
    lines = compare_lines(records)
    return _table(
        ("rule", "batch", "pairs", "Detector s", "baseline s", "ratio", "", "peak MB", "", "us a delete"),
        (
            (
                one["rule"], f"{one['batch']:,}", f"{one['pairs']:,}", number(one["ours_s"]), number(one["baseline_s"]),
                number(one["ratio"]), cpu.verdict, str(one["peak_mb"]), memory.verdict, number(one["delete_us"]),
            )
            for one, cpu, memory in zip(records, lines[::2], lines[1::2], strict=True)
        ),
    )  # fmt: skip


def _busy(records: Records) -> str:
    return _table(
        ("rule", "batch", "Detector s", "ratio"),
        ((one["rule"], f"{one['batch']:,}", number(one["ours_s"]), number(one["ratio"])) for one in records),
    )


def _singles(records: Records) -> str:
    return _table(
        ("rule", "rows as", "us an insert", ""),
        (
            (one["rule"], one["form"], number(one["microseconds"]), line.verdict)
            for one, line in zip(records, single_lines(records), strict=True)
        ),
    )


def _twenty(records: Records) -> str:
    return _table(
        ("engine", "together s", "sum of each alone s", "share", ""),
        (
            (one["engine"], number(one["together_s"]), number(one["alone_s"]), number(one["share"]), line.verdict)
            for one, line in zip(records, twenty_lines(records), strict=True)
        ),
    )


def _rules() -> str:
    return _table(("name", "rule"), ((name, f"`{rule}`") for name, rule in TWENTY.items()))


def _check(records: Records) -> str:
    return _table(
        ("rule", "pairs", "weever s", "DuckDB s", "ratio", "target", "", "with loading", "weever MB", "DuckDB MB"),
        (
            (
                one["rule"], f"{one['pairs']:,}", number(one["ours_s"]), number(one["duckdb_s"]), number(one["ratio"]),
                line.goal, line.verdict, number(one["ratio_with_loading"]), str(one["peak_mb"]),
                str(one["duckdb_peak_mb"]),
            )
            for one, line in zip(records, check_lines(records), strict=True)
        ),
    )  # fmt: skip


def _dirty(records: Records) -> str:
    one, line = records[0], dirty_lines(records[0])[0]
    return _table(
        ("table", "pairs", "s", "times clean", ""),
        (
            ("clean", f"{one['clean_pairs']:,}", number(one["clean_s"]), "", ""),
            ("5% dirty", f"{one['dirty_pairs']:,}", number(one["dirty_s"]), number(one["ratio"]), line.verdict),
        ),
    )


def _growth(records: Records) -> str:
    rows = []
    for one, lines in zip(records, _in_twos(growth_lines(records)), strict=True):
        quarter, full = one["points"][len(one["points"]) // 4 - 1], one["points"][-1]
        for which, line in zip(("last", "half"), lines, strict=True):
            rows.append(
                (
                    one["rule"], "last 100,000" if which == "last" else "last half",
                    *(number(point[f"{which}_us"]) for point in (quarter, full)),
                    *(number(point[f"{which}_pairs"]) for point in (quarter, full)),
                    number(one["ns_a_pair"]), number(one[f"{which}_ratio_with_pairs"]),
                    number(one[f"{which}_ratio"]), line.verdict,
                )
            )  # fmt: skip
    head = (
        "rule",
        "inserts",
        "us at 1M",
        "us at 4M",
        "pairs each at 1M",
        "at 4M",
        "ns a pair",
        "ratio",
        "without pairs",
    )
    return _table((*head, ""), rows)


def _against(records: Records) -> str:
    rows = []
    for one, line in zip(records, against_lines(records), strict=True):
        cells = [number(middle(one[side], what)) for side in ("ours", "join") for what in ("cpu", "wall")]
        rows.append((one["rule"], *cells, number(line.measured), line.verdict, number(100 * share(one["ours"]))))
    head = ("rule", "stream CPU s", "stream s", "join CPU s", "join s", "join / stream, CPU", "", "% of it in shards")
    return _table(head, rows)


def _stream_growth(records: Records) -> str:
    rows = [
        (f"{one['rows']:,}", *(number(middle(one["batches"], what)) for what in ("wall", "cpu")),
         f"{middle(one['batches'], 'shards'):.3f}", number(100 * share(one["batches"])))
        for one in records
    ]  # fmt: skip
    (line,) = stream_growth_lines(records)
    told = f"\nTime of a batch at ten times the rows: {number(line.measured)} times ({line.goal}: {line.verdict}).\n"
    return _table(("rows in state", "s a batch", "CPU s", "s in shards", "% of it"), rows) + told


def _snapshot(records: Records) -> str:
    rows = []
    for one in records:
        spent = (number(one["by"][kind]) for kind in ("driver", "jvm", "workers"))
        pairs = ("written out" if one["written"] else "kept packed", f"{one['pairs']:,}")
        times = (number(one["shards"]), number(one["wall"]))
        rows.append((f"{one['rows']:,}", *pairs, number(one["cpu"]), *spent, *times))
    told = "".join(
        f"\n{line.name}: {number(line.measured)} {line.unit}"
        + (f" ({line.goal}: {line.verdict}).\n" if line.goal else ".\n")
        for line in snapshot_lines(records)
    )
    head = ("rows", "pairs", "how many", "CPU s", "driver", "JVM", "workers", "s in shards", "s")
    return _table(head, rows) + told


def _fixed(records: Records) -> str:
    rows = [(one["settings"], *(number(middle(one["batches"], what)) for what in ("wall", "cpu"))) for one in records]
    return _table(("settings", "s a batch", "CPU s"), rows)


def _load_held(records: Records) -> str:
    rows = []
    for one, line in zip(records, load_lines(records), strict=True):
        spent = 1e6 * middle(one["batches"], "cpu") / one["size"]
        rows.append((one["rules"], f"{one['rows']:,}", f"{one['size']:,}", number(line.measured), number(spent)))
    return _table(("rules", "rows in state", "changes a batch", "changes a second", "CPU us a change"), rows)


def _size(records: Records) -> str:
    rows = [
        (one["rules"], f"{one['rows']:,}", f"{one['pairs']:,}", number(line.measured), number(one["grown_mb"]),
         number(1e6 * one["cpu"] / one["rows"]))
        for one, line in zip(records, size_lines(records), strict=True)
    ]  # fmt: skip
    return _table(("rules", "rows", "pairs", "bytes a row, written", "peak MB in one process", "CPU us a row"), rows)


def _soak(records: Records) -> str:
    (one,) = records
    told = (
        f"{one['minutes']:g} minutes, {one['live']:,} live rows, {one['changes']:,} changes every {one['every']:g}"
        f" seconds: {one['batches']:,} batches.\n\n"
    )
    rows = [
        (name, *(number(value) for value in quarters(one["samples"], name)), number(line.measured), line.verdict)
        for name, line in zip(MEASURES, soak_lines(records), strict=True)
    ]
    head = ("what", "first quarter", "second", "third", "last", "last / second", f"at most {FLAT:g}")
    return told + _table(head, rows)


def _fastadc(records: Records) -> str:
    rows = []
    for one in records:
        cpu, memory, _ = fastadc_lines([one])
        told = "" if one["only_ours"] or one["only_fastadc"] else ", the same"
        cells = [number(one[key]) for key in ("ours_s", "fastadc_s")] + [number(cpu.measured), cpu.verdict]
        cells += [f"{one[key]:,}" for key in ("ours_mb", "fastadc_mb")] + [number(memory.measured), memory.verdict]
        rows.append(
            (
                f"{one['rows']:,}",
                str(one["shard_length"]),
                *cells,
                f"{one['ours_rules']} and {one['fastadc_rules']}{told}",
            )
        )
    head = (
        "rows",
        "shard_length",
        "weever CPU s",
        "FastADC CPU s",
        "ratio",
        "",
        "weever MB",
        "FastADC MB",
        "ratio",
        "",
        "rules",
    )
    return _table(head, rows) + f"\nFastADC of desbordante {records[0]['version']}.\n"


def _discover_growth(records: Records) -> str:
    rows = [
        (f"{one['rows']:,}", number(one["cpu_s"]), f"{one['peak_mb']:,}", f"{one['pairs_seen']:,}", f"{one['rules']:,}",
         "yes" if one["exact"] else "no")
        for one in records
    ]  # fmt: skip
    (line,) = discover_growth_lines(records)
    told = f"\nCPU at the most rows: {number(line.measured)} times that at the fewest ({line.goal}: {line.verdict}).\n"
    return _table(("rows", "CPU s", "peak MB", "pairs looked at", "rules", "exact"), rows) + told


def _learned(lines: Callable[[Records], list[Line]]) -> Callable[[Records], str]:
    def show(records: Records) -> str:
        rows = []
        for (cpu, differ), one in zip(_in_twos(lines(records)), records, strict=True):
            mine, other = ("learn_s", "scratch_s") if "learn_s" in one else ("delete_s", "insert_s")
            cells = (number(one[mine]), number(one[other]), number(cpu.measured), cpu.goal, cpu.verdict)
            rows.append((cpu.name.removeprefix("learn: ").removesuffix(", CPU"), *cells, number(differ.measured)))
        head = ("what", "CPU s", "against CPU s", "ratio", "target", "", "rules that differ")
        return _table(head, rows)

    return show


def _airport(records: Records) -> str:
    published, differ = records[0]["published"], records[0]["published_differ"]
    told = f"\nOf the {published} published rules and those that the learner begins with {differ} differ.\n"
    return _learned(airport_lines)(records) + told


def _learn_growth(records: Records) -> str:
    rows = [
        (f"{one['rows']:,}", number(1000 * one["cpu_s"]), number(one["start_s"]), str(one["sets"])) for one in records
    ]
    (line,) = learn_growth_lines(records)
    told = f"\nAt the most rows: {number(line.measured)} times the CPU at the fewest ({line.goal}: {line.verdict}).\n"
    return _table(("rows held", "1,000 rows more, CPU ms", "start, CPU s", "sets watched"), rows) + told


def _in_twos(lines: Sequence[Line]) -> list[Sequence[Line]]:
    return [lines[at : at + 2] for at in range(0, len(lines), 2)]


_LINES: dict[str, Callable[[Records], list[Line]]] = {
    "detector": compare_lines,
    "singles": single_lines,
    "twenty": twenty_lines,
    "check-count": check_lines,
    "check-dirty": lambda records: dirty_lines(records[0]),
    "check-list": check_lines,
    "growth": growth_lines,
    "stream-against": against_lines,
    "stream-growth": stream_growth_lines,
    "stream-snapshot": lambda records: [line for line in snapshot_lines(records) if line.target is not None],
    "limits-soak": soak_lines,
    "discover-fastadc": fastadc_lines,
    "discover-growth": discover_growth_lines,
    "learn-tax": tax_lines,
    "learn-airport": airport_lines,
    "learn-growth": learn_growth_lines,
}


def _summary() -> str:
    """How many targets are met, and every one that is not."""
    kept = [(make, found) for part, make in _LINES.items() if (found := load(part))]
    judged = [line for make, found in kept for line in make(found["records"]) if line.target is not None]
    missed = [line for line in judged if line.passed is False]
    told = f"{sum(line.passed is True for line in judged)} of {len(judged)} targets are met.\n"
    if not missed:
        return told
    table = _table(
        ("missed", "target", "measured", "by"),
        ((line.name, f"{line.goal} {line.unit}", number(line.measured), line.verdict) for line in missed),
    )
    return f"{told}\n{table}"


def _machine() -> str:
    out = []
    for part in (*_LINES, "stream-fixed", "limits-load", "limits-size", "check-plain", "detector-busy", "growth-busy"):
        if found := load(part):
            about = found["machine"]
            versions = ", ".join(f"{name} {value}" for name, value in about["versions"].items())
            where = f"{about['cpu']}, {about['cores']} cores, {about['memory_gb']} GB, {about['system']}"
            out.append((part, found["date"], found["commit"], str(found["load"]), where, versions))
    return _table(("part", "date", "commit", "load", "machine", "versions"), out)


_PARTS: dict[str, Callable[[], str]] = {
    "summary": _summary,
    "machine": _machine,
    "twenty-rules": _rules,
    "detector": _shown("detector", _detector),
    "detector-busy": _shown("detector-busy", _busy),
    "growth-busy": _shown("growth-busy", _growth),
    "singles": _shown("singles", _singles),
    "twenty": _shown("twenty", _twenty),
    "check-count": _shown("check-count", _check),
    "check-dirty": _shown("check-dirty", _dirty),
    "check-list": _shown("check-list", _check),
    "check-plain": _shown("check-plain", _check),
    "growth": _shown("growth", _growth),
    "stream-against": _shown("stream-against", _against),
    "stream-growth": _shown("stream-growth", _stream_growth),
    "stream-snapshot": _shown("stream-snapshot", _snapshot),
    "stream-fixed": _shown("stream-fixed", _fixed),
    "limits-load": _shown("limits-load", _load_held),
    "limits-size": _shown("limits-size", _size),
    "limits-soak": _shown("limits-soak", _soak),
    "discover-fastadc": _shown("discover-fastadc", _fastadc),
    "discover-growth": _shown("discover-growth", _discover_growth),
    "learn-tax": _shown("learn-tax", _learned(tax_lines)),
    "learn-airport": _shown("learn-airport", _airport),
    "learn-growth": _shown("learn-growth", _learn_growth),
}

if __name__ == "__main__":
    write()

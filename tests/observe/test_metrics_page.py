"""docs/metrics.md tells what there is, and nothing else. Catches a metric, event or field that nobody documents."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.observe.test_dashboards import fed, names_in
from weever_stream.job import options
from weever_stream.job.job import job_of
from weever_stream.observe.logs import IDENTITY
from weever_stream.rules import read_rules_text

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
FREE = {"message", "told"}
"""Arguments of the log's own methods."""


def section(heading: str) -> str:
    _, _, rest = PAGE.partition(f"\n{heading}\n")
    assert rest, heading
    return re.split(r"\n#", rest)[0]


def cells(heading: str) -> list[list[str]]:
    """The rows of the tables under a heading."""
    rows = [line for line in section(heading).splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in row.strip("|").split(" |")][: row.count(" |")] for row in rows]


def test_every_metric_is_told_with_its_type_and_labels():
    rows = {
        name: (kind.split(",")[0], set(re.findall(r"`(\w+)`", labels.split(";")[0])))
        for names, kind, labels, _ in cells("### What there is")
        for name in re.findall(r"`(weever_\w+)`", names)
    }
    found = {}
    for family in fed().collect():
        name = family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")
        labels = {label for sample in family.samples for label in sample.labels} - {"job_name", "table"}
        found[name] = ("gauge" if family.type == "info" else family.type, labels)
    assert {name: kind for name, (kind, _) in rows.items()} == {name: kind for name, (kind, _) in found.items()}
    for name, (_, labels) in found.items():
        assert labels <= rows[name][1], name


def test_queries_on_the_page_ask_for_what_there_is():
    known = {sample.name for family in fed().collect() for sample in family.samples}
    queries = PAGE.partition("Queries to begin with:\n\n```\n")[2].partition("```")[0].splitlines()
    assert len(queries) >= 4
    for query in queries:
        assert names_in(query) <= known, query


def test_the_job_on_the_page_is_one_and_every_field_is_told():
    [text] = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)
    assert job_of(read_rules_text(text)).metrics.port == 9464
    table = section("## Metrics")
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.M)) == set(options.Metrics.model_fields)


def logged() -> dict[str, set[str]]:
    """Every event that the package logs by name, with its fields."""
    events: dict[str, set[str]] = {}
    for path in (ROOT / "weever_stream").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
                continue
            first = node.args[0]
            if node.func.attr in ("debug", "info", "warning", "error") and isinstance(first, ast.Constant):
                fields = {word.arg for word in node.keywords if word.arg} - {"extra"}
                events.setdefault(str(first.value), set()).update(fields - FREE)
    return events


def test_every_event_and_field_is_told():
    events = logged()
    assert {"job_started", "batch_done", "rules_changed", "lease_refused", "failed", "lineage_failed"} <= set(events)
    text = section("## Logs")
    told = {
        name: set(re.findall(r"`(\w+)`", row[2]))
        for row in cells("## Logs")
        if len(row) == 3
        for name in re.findall(r"`(\w+)`", row[0])
    }
    for event, fields in events.items():
        assert event in told, f"{event} is not on the page"
        assert fields - set(IDENTITY) <= told[event], event
    for name in (*IDENTITY, "timestamp", "level", "logger", "event"):
        assert re.search(rf"^\| `{name}` \|", text, re.M), name


def test_every_variable_is_told():
    read = set()
    for path in (ROOT / "weever_stream" / "observe").rglob("*.py"):
        read |= set(re.findall(r"""["']((?:WEEVER|OPENLINEAGE)_[A-Z_]+)["']""", path.read_text("utf-8")))
    assert len(read) >= 7
    assert {name for name in read if f"`{name}" not in PAGE} == set()

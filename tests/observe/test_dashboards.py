"""The dashboard and the alert rules in deploy/: they ask for metrics that there are, in queries that Prometheus takes.

Catches: a metric that was renamed and a panel that stays empty for ever; a query that does not parse; an alert without a
summary or a runbook; one that fires when it should not. What is named is always checked against the registry; queries
and alerts also by promtool, where it is found on the path or by the environment variable PROMTOOL.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.observe.reports import RULES, report
from weever_stream.observe.metrics import OUTCOMES, Metrics

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PROMTOOL = os.environ.get("PROMTOOL") or shutil.which("promtool")
NOT_OURS = {"up"}
"""What Prometheus itself tells of every target."""
_WORDS = re.compile(r'"(?:[^"\\]|\\.)*"|\[[^\]]*\]|\{\{.*?\}\}|\b(?:by|on|without|ignoring) \([^)]*\)')
_NAME = re.compile(r"[a-zA-Z_:][\w:]*")
_LANGUAGE = {
    "sum",
    "min",
    "rate",
    "increase",
    "delta",
    "changes",
    "time",
    "topk",
    "histogram_quantile",
    "vector",
    "or",
    "and",
}


def fed() -> Metrics:
    """Metrics of a job to which everything has happened that makes a series."""
    metrics = Metrics("nightly", "packages", RULES.rules)
    metrics.targets(["ops"])
    metrics.batch(report(0, behind={"maxOffsetsBehindLatest": "1", "numFilesOutstanding": "2"}))
    metrics.learned(3, ["added", "dropped"])
    return metrics


def known() -> dict[str, dict[str, set[str]]]:
    """Every sample that there is, with its labels and their values."""
    found: dict[str, dict[str, set[str]]] = {}
    for family in text_string_to_metric_families(fed().text().decode()):
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                labels.setdefault(label, set()).add(value)
    return found


def names_in(query: str) -> set[str]:
    """The names of metrics in a query: what is neither a text, a range, a list of labels nor a word of the language."""
    bare = re.sub(r"\{[^}]*\}", " ", _WORDS.sub(" ", query))
    return {name for name in _NAME.findall(bare) if name not in _LANGUAGE and not re.fullmatch(r"\d.*", name)}


def dashboard() -> dict[str, Any]:
    read: dict[str, Any] = json.loads((DEPLOY / "grafana" / "weever.json").read_text())
    return read


def panels() -> Iterator[dict[str, Any]]:
    for panel in dashboard()["panels"]:
        if panel["type"] != "row":
            yield panel


def rules() -> list[dict[str, Any]]:
    read: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
    return [rule for group in read["groups"] for rule in group["rules"]]


def queries() -> Iterator[tuple[str, str]]:
    for panel in panels():
        for target in panel["targets"]:
            yield f"the panel {panel['title']}", target["expr"]
    for rule in rules():
        yield f"the alert {rule['alert']}", rule["expr"]
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            yield "the variable", variable["definition"].removeprefix("label_values(").partition(",")[0]


def test_names_are_found_in_queries():
    query = 'topk(15, 60 * sum by (table, rule) (rate(a_total{table=~"$t",x="b_total"}[$__rate_interval])) > 0) or time() - c'
    assert names_in(query) == {"a_total", "c"}


@pytest.mark.parametrize(("where", "query"), sorted(queries()))
def test_queries_ask_for_what_there_is(where: str, query: str):
    there = known()
    named = names_in(query)
    assert named, where
    assert named - NOT_OURS <= set(there), f"{where} asks for what nobody tells"
    labels = {label for name in named - NOT_OURS for label in there[name]} | {"job", "instance", "le"}
    for listed in re.findall(r"\bby \(([^)]*)\)", query):
        assert {label.strip() for label in listed.split(",")} <= labels, where
    for name, selectors in re.findall(r"([\w:]+)\{([^}]*)\}", query):
        for label, value in re.findall(r'(\w+)[=!]~?"([^"]*)"', selectors):
            assert label in labels, where
            if name not in NOT_OURS and label in ("outcome", "op", "place"):
                assert value in there[name][label], f"{where}: there is no {label} {value}"


def test_every_metric_of_ours_is_on_the_dashboard():
    asked = {name for panel in panels() for target in panel["targets"] for name in names_in(target["expr"])}
    families = {family.name for family in fed().collect()}
    shown = {name for name in families if any(re.fullmatch(rf"{name}(_total|_bucket|_info)?", one) for one in asked)}
    assert families - shown == {"weever_last_batch_timestamp_seconds"}, "that one is what last success is made of"


def test_the_dashboard_is_one():
    board = dashboard()
    assert board["uid"] == "weever"
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(set(numbers)) == len(numbers)
    for panel in panels():
        assert panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references) > 0
        at = panel["gridPos"]
        assert 0 <= at["x"] < at["x"] + at["w"] <= 24
    cells = [
        (panel["gridPos"]["x"] + dx, panel["gridPos"]["y"] + dy)
        for panel in board["panels"]
        for dx in range(panel["gridPos"]["w"])
        for dy in range(panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells), "no panel lies on another"


def test_every_alert_says_what_is_wrong_and_where_to_read_what_to_do():
    found, runbooks = rules(), (ROOT / "docs" / "operate.md").read_text(encoding="utf-8")
    assert len({rule["alert"] for rule in found}) == len(found) > 8
    for rule in found:
        assert re.fullmatch(r"Weever[A-Z]\w+", rule["alert"])
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description", "runbook"}
        words = re.findall(r"[A-Z][a-z]+", rule["alert"].removeprefix("Weever"))
        assert rule["annotations"]["runbook"] == f"docs/operate.md#{'-'.join(words).lower()}"
        assert re.search(rf"^#+ {' '.join(words)}$", runbooks, re.M | re.I), f"{rule['alert']} has no runbook"
        there = {label for name in names_in(rule["expr"]) for label in known().get(name, {})} | {"instance", "job"}
        for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
            assert label in there, f"{rule['alert']}: {label} would be empty"


def test_outcomes_that_alerts_look_for_are_told():
    assert {"failed", "gave_up"} <= set(OUTCOMES)


def test_prometheus_is_told_where_the_rules_are():
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    for name in config["rule_files"]:
        assert (DEPLOY / "prometheus" / name).exists()
    jobs = {job["job_name"] for job in config["scrape_configs"]}
    asked = {name for _, query in queries() for name in re.findall(r'\bjob="(\w+)"', query)}
    assert asked == jobs


def promtool(*arguments: str, **more: Any) -> str:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, timeout=60, check=False, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not here")


@needs_promtool
def test_promtool_takes_the_configuration_and_the_rules():
    assert "SUCCESS" in promtool("check", "config", str(DEPLOY / "prometheus" / "prometheus.yml"))
    assert f"{len(rules())} rules found" in promtool("check", "rules", str(DEPLOY / "prometheus" / "alerts.yml"))


@needs_promtool
def test_alerts_fire_when_they_should(tmp_path: Path):
    for file in (DEPLOY / "prometheus" / "alerts.yml", Path(__file__).parent / "alerts_test.yml"):
        shutil.copy(file, tmp_path)
    assert "SUCCESS" in promtool("test", "rules", str(tmp_path / "alerts_test.yml"))
    tested = (tmp_path / "alerts_test.yml").read_text()
    assert {rule["alert"] for rule in rules()} == set(re.findall(r"alertname: (\w+)", tested)), "each of them is tried"


@needs_promtool
def test_promtool_takes_every_query_of_the_dashboard(tmp_path: Path):
    made = [
        {"record": f"panel:number_{number}", "expr": query.replace("$__rate_interval", "5m").replace("$table", ".*")}
        for number, (_, query) in enumerate(queries())
    ]
    (tmp_path / "queries.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": made}]}))
    assert "SUCCESS" in promtool("check", "rules", str(tmp_path / "queries.yml"))


@needs_promtool
def test_promtool_finds_nothing_wrong_with_the_metrics():
    assert promtool("check", "metrics", input=fed().text().decode()) == ""

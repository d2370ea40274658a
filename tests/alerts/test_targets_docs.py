"""The page of targets. Catches: an example that cannot be read, JSON that is no longer what is sent, and code that does
not run.
"""

from __future__ import annotations

import json
import os
import re
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.alerts.notices import OPENED, local, options
from weever_stream import Detector
from weever_stream.alerts.desk import Desk
from weever_stream.alerts.news import count, joined
from weever_stream.alerts.notice import Notice
from weever_stream.alerts.targets import pagerduty, slack, webhook
from weever_stream.alerts.targets.alertmanager import Alertmanager
from weever_stream.job.job import job_of
from weever_stream.job.routes import routes_of
from weever_stream.rules import read_rules_text

PAGE = Path(__file__).parents[2] / "docs" / "alert-targets.md"
TEXT = PAGE.read_text(encoding="utf-8")
JOB = """\
table: packages
key: package_code
source: {kind: delta, path: /lake/packages}
state: {checkpoint: /lake/_checkpoints/packages}
rules:
  - name: zip_determines_city
    fd: zip -> city
"""
KINDS = {"pagerduty", "alertmanager", "slack", "teams", "webhook", "email", "log"}
RULES = """\
table: packages
key: package_code
rules:
  - name: zip_determines_city
    fd: zip -> city
    description: A zip code is in one city
    owner: ana
    alerts: {values: keys, runbook: "https://wiki.example.com/zip"}
"""


def shown() -> Notice:
    """What a job says of two rows that contradict each other, and of eleven more: a real rule, and what it really finds."""
    file = read_rules_text(RULES)
    routes = routes_of([options("log", name="ops")], file.rules, file.key)
    desk = Desk("packages", routes, job="packages-production", rules=["zip_determines_city"])
    rows = [{"package_code": 17, "zip": "1050", "city": "Wien"}, {"package_code": 23, "zip": "1050", "city": "Graz"}]
    found, asked = Detector(file).insert(rows).to_arrow().to_pydict(), desk.question()
    desk.take(joined([count(found, asked)], asked, 7, '{"version":41}', {"zip_determines_city": 12}))
    (want,), _ = desk.wants(OPENED)
    return desk.sending(want, OPENED)


SHOWN = shown()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.S | re.M)


def sent() -> dict[str, Any]:
    at = datetime(2026, 3, 8, 7, tzinfo=timezone.utc)
    manager = Alertmanager(local("alertmanager", url="http://127.0.0.1:9093", labels={"team": "data"}), lambda: at)
    return {
        "pagerduty": {"routing_key": "…", **pagerduty.event(SHOWN)},
        "alertmanager": [manager.alert(SHOWN, manager.labels_of(SHOWN))],
        "slack": slack.message(SHOWN),
        "webhook": webhook.body(SHOWN),
    }


def test_every_example_can_be_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    secrets = tmp_path / "secret"
    secrets.write_text("https://hooks.slack.com/services/T/B/x")
    kinds: set[str] = set()
    for block in blocks("yaml"):
        text = JOB + block.replace("/run/secrets/slack_webhook", str(secrets))
        names = re.findall(r"\$\{env:(\w+)\}", block)
        job = job_of(read_rules_text(text).resolve(dict.fromkeys(names, "https://x.example.com/secret")))
        assert job.alerts
        kinds |= {target.kind for target in job.alerts}
    assert kinds == KINDS


def test_a_key_that_is_written_out_is_refused() -> None:
    for kind, field in (("pagerduty", "routing_key"), ("slack", "webhook"), ("teams", "webhook")):
        with pytest.raises(ValueError, match="written out"):
            options(kind, **{field: "https://x.example.com/secret"})


def test_what_is_shown_as_sent_is_what_is_sent() -> None:
    shown = dict(re.findall(r"^<!-- sent: (\w+) -->\n+```json\n(.*?)^```", TEXT, re.S | re.M))
    if os.environ.get("WEEVER_WRITE_DOCS"):
        _write()
        shown = dict(re.findall(r"^<!-- sent: (\w+) -->\n+```json\n(.*?)^```", PAGE.read_text("utf-8"), re.S | re.M))
    assert {kind: json.loads(text) for kind, text in shown.items()} == sent()


def _write() -> None:
    """Writes the JSON blocks of the page anew."""
    text = re.sub(r"(^<!-- sent: \w+ -->\n)\n+```json\n.*?^```\n", r"\1", TEXT, flags=re.S | re.M)
    for kind, told in sent().items():
        block = f"<!-- sent: {kind} -->\n\n```json\n{_laid_out(told)}\n```\n"
        text = text.replace(f"<!-- sent: {kind} -->\n", block)
    PAGE.write_text(text, encoding="utf-8")


def _laid_out(value: Any, margin: str = "") -> str:
    """JSON that a person can read: what fits on a line is on one."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + len(margin) <= 110 or not isinstance(value, dict | list):
        return line
    inner = margin + "  "
    if isinstance(value, dict):
        parts = [f"{json.dumps(name)}: {_laid_out(item, inner)}" for name, item in value.items()]
    else:
        parts = [_laid_out(item, inner) for item in value]
    opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    return f"{opening}\n{inner}" + f",\n{inner}".join(parts) + f"\n{margin}{closing}"


def test_the_signature_can_be_checked_as_shown() -> None:
    names: dict[str, Any] = {}
    [code] = blocks("python")
    exec(compile("from __future__ import annotations\n" + code, str(PAGE), "exec"), names)
    header = webhook.signature("shared", 1000, b"{}")
    check = names["is_from_weever"]
    assert check(b"shared", header, b"{}", 1010) is True
    assert check(b"shared", header, b"{ }", 1010) is False
    assert check(b"other", header, b"{}", 1010) is False
    assert check(b"shared", header, b"{}", 1301) is False


def test_the_page_names_every_field_of_every_kind() -> None:
    import weever_stream.job.alerts as models

    for kind in KINDS:
        model = getattr(models, f"{kind.capitalize()}Alert")
        own = set(model.model_fields) - set(models.AlertOptions.model_fields)
        for name in own | {"timeout", "allow_hosts", "ca_file"}:
            assert re.search(rf"\b{name}\b", TEXT), f"{kind}: {name}"

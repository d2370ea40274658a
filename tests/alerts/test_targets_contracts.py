"""What each HTTP target sends, and what it makes of the answers that the other side's contract has. Catches: a resolve
that does not match its trigger, a thread that is lost, a signature that nobody can check, an error that hides behind a
good status.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.alerts import servers
from tests.alerts.desks import news
from tests.alerts.notices import KEY, OPENED, local, notice, options, secret
from tests.alerts.servers import Server, answer, says, serving
from weever_stream.alerts.hosts import TargetError
from weever_stream.alerts.notice import DeliveryError, Example
from weever_stream.alerts.targets import open_target
from weever_stream.alerts.targets.alertmanager import Alertmanager
from weever_stream.alerts.targets.webhook import Webhook
from weever_stream.job.job import job_of
from weever_stream.observe import logs
from weever_stream.rules import read_rules_text
from weever_stream.rules.model import SEVERITIES
from weever_stream.stream.alerting import AlertIntake, alerting

EXAMPLE = Example("3fa9", "17", "23", {"zip": "1050"}, {"city": "Graz"})


def refused(target: Any, told: Any = None, memory: Any = None) -> DeliveryError:
    with pytest.raises(DeliveryError) as error:
        target.send(told or notice(), memory or {})
    return error.value


# PagerDuty


def pagerduty(server: Server) -> Any:
    return open_target(local("pagerduty", routing_key=secret("R" * 32), url=server.url("/v2/enqueue")))


def test_pagerduty_triggers_and_resolves_under_one_key() -> None:
    with serving(says(202, status="success", message="Event processed", dedup_key=KEY)) as server:
        target = pagerduty(server)
        for what in ("open", "update", "resolve"):
            target.send(notice(what, examples=(EXAMPLE,)), {})
        sent = [request.json for request in server.requests]
        assert [one["event_action"] for one in sent] == ["trigger", "trigger", "resolve"]
        assert {one["dedup_key"] for one in sent} == {KEY}
        assert {one["routing_key"] for one in sent} == {"R" * 32}
        payload = sent[0]["payload"]
        assert payload["summary"] == "zip_determines_city: 12 violations open in packages"
        assert (payload["source"], payload["severity"], payload["class"]) == (
            "packages",
            "error",
            "zip_determines_city",
        )
        assert datetime.fromisoformat(payload["timestamp"]) == OPENED
        assert payload["custom_details"]["examples"] == ["key 17 and key 23: zip 1050 | city Graz"]
        assert payload["custom_details"]["rule"] == "t.city != s.city and t.zip = s.zip"
        assert sent[0]["links"] == [{"href": "https://wiki.example.com/zip?x=1&y=2", "text": "Runbook"}]
        assert server.requests[0].path == "/v2/enqueue"


def test_pagerduty_knows_all_our_severities() -> None:
    with serving(says(202, status="success")) as server:
        for severity in SEVERITIES:
            pagerduty(server).send(notice(severity=severity), {})
        assert [one.json["payload"]["severity"] for one in server.requests] == ["info", "warning", "error", "critical"]


def test_pagerduty_errors() -> None:
    script = [
        says(400, status="invalid event", message="secret words", errors=["Length of 'routing_key' is incorrect"]),
        answer(429),
        says(200, status="throttle exceeded"),
        says(202, status="invalid event"),
    ]
    with serving(*script) as server:
        errors = [refused(pagerduty(server)) for _ in script]
        assert [error.again for error in errors] == [False, True, True, False]
        assert errors[0].reason == "127.0.0.1 answered 400 (is the routing key right?)"
        assert "secret words" not in str(errors)


# Slack


def slack(server: Server, **fields: Any) -> Any:
    how = fields or {"token": secret("xoxb-1"), "channel": "#data"}
    return open_target(local("slack", url=server.url("/api/chat.postMessage"), **how))


def posted(ts: str = "171.001") -> servers.Step:
    return says(200, ok=True, channel="C0123", ts=ts)


def test_slack_replies_in_the_thread_that_the_alert_began() -> None:
    with serving(posted("171.001"), posted("171.002"), posted("171.003"), posted("171.004")) as server:
        target = slack(server)
        memory = dict(target.send(notice(), {}).memory)
        for what in ("update", "resolve"):
            memory |= target.send(notice(what), memory).memory
        assert memory["ts"] == "171.001"
        target.send(notice(), memory)
        sent = [request.json for request in server.requests]
        assert [one.get("thread_ts") for one in sent] == [None, "171.001", "171.001", None]
        assert [one["channel"] for one in sent] == ["#data", "C0123", "C0123", "#data"]
        assert [one.get("reply_broadcast") for one in sent[1:3]] == [False, False]
        assert sent[0]["text"] == "zip_determines_city: 12 violations open in packages"
        assert server.requests[0].headers["Authorization"] == "Bearer xoxb-1"
        assert "utf-8" in server.requests[0].headers["Content-Type"]


def test_slack_begins_anew_where_the_thread_or_the_channel_is_gone() -> None:
    with serving(says(200, ok=False, error="thread_not_found"), posted("172.001"), posted("173.001")) as server:
        memory = {"ts": "171.001", "channel": "C0123", "to": "#data"}
        assert slack(server).send(notice("resolve"), memory).memory["ts"] == "172.001"
        assert [one.json.get("thread_ts") for one in server.requests] == ["171.001", None]
        slack(server).send(notice("resolve"), {**memory, "to": "#elsewhere"})
        assert (server.requests[-1].json["channel"], server.requests[-1].json.get("thread_ts")) == ("#data", None)


@pytest.mark.parametrize(
    ("step", "again", "reason"),
    [
        (says(200, ok=False, error="channel_not_found"), False, "channel_not_found"),
        (says(200, ok=False, error="invalid_auth"), False, "invalid_auth"),
        (says(200, ok=False, error="ratelimited"), True, "ratelimited"),
        (says(200, ok=False, error="internal_error"), True, "internal_error"),
        (says(200, ok=False, error="thread_not_found"), False, "thread_not_found"),
        (says(200, ok=False, error="a row value"), False, "an error without a known name"),
        (says(200, ok=False, error={"a": 1}), False, "an error without a known name"),
        (says(200), False, "an error without a known name"),
        (answer(200, "<html>"), True, "nobody knows"),
        (answer(200, "[" * 60_000), True, "nobody knows"),
        (answer(200, "1"), True, "nobody knows"),
        (servers.raw(b'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"ok": tr'), True, "broke off"),
        (answer(429, Retry_After="30"), True, "answered 429"),
        (answer(503, "a row value"), True, "answered 503"),
    ],
)
def test_slack_errors(step: servers.Step, again: bool, reason: str) -> None:
    with serving(step) as server:
        error = refused(slack(server))
        assert (error.again, reason in error.reason, "row value" in error.reason) == (again, True, False)
        assert error.unsure == any(said in error.reason for said in ("nobody knows", "internal_error", "503"))
        assert len(server.requests) == 1


def test_slack_by_webhook() -> None:
    with serving(answer(200, "ok")) as server:
        target = slack(server, webhook=secret(server.url("/services/T/B/x")))
        assert target.send(notice("resolve"), {}).memory == {}
        [request] = server.requests
        assert request.path == "/services/T/B/x"
        assert set(request.json) == {"text", "blocks", "unfurl_links", "unfurl_media"}
        assert "Authorization" not in request.headers
        assert request.json["blocks"][0]["text"]["text"].startswith(":white_check_mark: *zip_determines_city is fixed")


@pytest.mark.parametrize(
    ("step", "again", "reason"),
    [
        (answer(404, "no_service"), False, "127.0.0.1 answered 404 (no_service)"),
        (answer(403, "invalid_token"), False, "127.0.0.1 answered 403 (invalid_token)"),
        (answer(410, "channel_is_archived"), False, "127.0.0.1 answered 410 (channel_is_archived)"),
        (answer(400, "a row value"), False, "127.0.0.1 answered 400"),
        (answer(500, "rollup_error"), True, "127.0.0.1 answered 500 (rollup_error)"),
        (answer(200, "no_text"), False, "127.0.0.1 did not take the message (no_text)"),
        (says(200, ok=False, error="rate_limited"), True, "127.0.0.1 did not take the message (rate_limited)"),
    ],
)
def test_slack_webhook_errors(step: servers.Step, again: bool, reason: str) -> None:
    with serving(step) as server:
        error = refused(slack(server, webhook=secret(server.url("/services/T/B/x"))))
        assert (error.again, error.reason) == (again, reason)


def test_a_slack_token_is_one_line() -> None:
    with pytest.raises(TargetError) as error:
        open_target(local("slack", token=secret("xoxb\r\nX: y"), channel="C", url="http://127.0.0.1:1/"))
    assert "xoxb" not in error.value.render()


# Teams


def test_teams_posts_a_card() -> None:
    with serving(answer(202), answer(200, "1")) as server:
        target = open_target(local("teams", webhook=secret(server.url("/workflows/x?sig=y"))))
        target.send(notice(examples=(EXAMPLE,)), {})
        target.send(notice("resolve"), {})
        told = server.requests[0].json
        assert told["type"] == "message"
        [attachment] = told["attachments"]
        assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
        card = attachment["content"]
        assert (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
        lines = ["".join(run["text"] for run in block["inlines"]) for block in card["body"]]
        assert lines[0] == "zip_determines_city: 12 violations open in packages"
        assert "key 17 and key 23: zip 1050 | city Graz" in lines
        assert card["actions"][0]["url"] == "https://wiki.example.com/zip?x=1&y=2"
        assert card["body"][0]["inlines"][0]["color"] == "Attention"
        assert server.requests[1].json["attachments"][0]["content"]["body"][0]["inlines"][0]["color"] == "Good"


def test_teams_errors() -> None:
    failed = "Webhook message delivery failed with error: Microsoft Teams endpoint returned HTTP error 429"
    with serving(answer(200, failed), answer(429, Retry_After="5"), answer(401), answer(413)) as server:
        target = open_target(local("teams", webhook=secret(server.url("/workflows/x"))))
        errors = [refused(target) for _ in range(4)]
        assert [error.again for error in errors] == [True, True, False, False]
        assert errors[1].after == 5.0


# Webhook


def test_the_webhook_can_be_checked_by_its_signature() -> None:
    with serving() as server:
        options = local("webhook", url=server.url(), secret=secret("shared"))
        Webhook(options, clock=lambda: 1_772_953_199.9).send(notice(), {})
        [request] = server.requests
        signed = dict(part.split("=", 1) for part in request.headers["X-Weever-Signature"].split(","))
        assert signed["t"] == "1772953199"
        expected = hmac.new(b"shared", b"1772953199." + request.body, hashlib.sha256).hexdigest()
        assert hmac.compare_digest(signed["v1"], expected)
        open_target(local("webhook", url=server.url())).send(notice(), {})
        assert "X-Weever-Signature" not in server.requests[1].headers


def test_the_webhooks_id_is_the_same_for_each_try_and_another_for_each_notice() -> None:
    with serving() as server:
        target = open_target(local("webhook", url=server.url()))
        told = notice("update")
        for one in (told, replace(told, at=told.at + timedelta(minutes=5), open=13)):
            target.send(one, {})
        for other in (notice(), notice("resolve"), notice("update", serial="2"), notice("update", dedup_key="other")):
            target.send(other, {})
        ids = [request.headers["X-Weever-Id"] for request in server.requests]
        assert ids[0] == ids[1]
        assert len(set(ids)) == 5
        assert [request.json["id"] for request in server.requests] == ids
        assert ids[0].startswith(f"{KEY}:update:")


def test_the_webhooks_body_is_the_documented_one() -> None:
    with serving() as server:
        open_target(local("webhook", url=server.url())).send(
            notice(group={"zip": "1050"}, group_id="a1b2", examples=(EXAMPLE,), position="17", trial=True), {}
        )
        assert server.requests[0].json == {
            "version": 1,
            "id": f"{KEY}:open:2026-03-08T06:59:59%2B00:00",
            "event": "open",
            "trial": True,
            "dedup_key": KEY,
            "title": "[trial] zip_determines_city: 12 violations open in packages (zip = 1050)",
            "job": "packages-production",
            "table": "packages",
            "rule": "zip_determines_city",
            "severity": "error",
            "open": 12,
            "backfilling": False,
            "opened_at": "2026-03-08T06:59:59+00:00",
            "at": "2026-03-08T06:59:59+00:00",
            "group": {"zip": "1050"},
            "group_id": "a1b2",
            "expression": "t.city != s.city and t.zip = s.zip",
            "description": "A zip code is in one city",
            "owner": "ana",
            "runbook": "https://wiki.example.com/zip?x=1&y=2",
            "reason": None,
            "source_position": "17",
            "examples": [
                {
                    "violation_id": "3fa9",
                    "left_key": "17",
                    "right_key": "23",
                    "left_values": {"zip": "1050"},
                    "right_values": {"city": "Graz"},
                }
            ],
        }


# Alertmanager, as far as it does not take the real one


def test_alertmanager_hears_the_same_labels_whatever_becomes_of_the_job_file() -> None:
    now = datetime(2026, 3, 8, 9, tzinfo=timezone.utc)
    with serving(answer(200)) as server:
        first = Alertmanager(local("alertmanager", url=server.url("/am/"), labels={"team": "data"}), lambda: now)
        later = Alertmanager(local("alertmanager", url=server.url("/am/"), labels={"team": "other"}), lambda: now)
        memory = first.send(notice(), {}).memory
        later.send(notice("resolve", severity="critical", owner="bob"), memory)
        [[opened], [over]] = [request.json for request in server.requests]
        assert server.requests[0].path == "/am/api/v2/alerts"
        assert opened["labels"] == over["labels"]
        assert opened["labels"]["team"] == "data"
        assert (opened["startsAt"], opened["endsAt"]) == ("2026-03-08T06:59:59+00:00", "2026-03-08T10:00:00+00:00")
        assert (over["startsAt"], over["endsAt"]) == ("2026-03-08T06:59:59+00:00", "2026-03-08T08:59:59+00:00")
        assert opened["annotations"]["summary"] == "zip_determines_city: 12 violations open in packages"
        assert opened["annotations"]["runbook_url"] == "https://wiki.example.com/zip?x=1&y=2"
        assert first.repeats == 900.0


def test_an_alert_never_ends_before_it_starts() -> None:
    with serving(answer(200)) as server:
        target = open_target(local("alertmanager", url=server.url("/api/v2/alerts")))
        target.send(notice("resolve", at=OPENED - timedelta(seconds=5)), {})
        [alert] = server.requests[0].json
        assert alert["endsAt"] == alert["startsAt"]
        assert server.requests[0].path == "/api/v2/alerts"


@pytest.mark.parametrize("label", ["severity", "dedup_key", "a-b", "1a", "", "ä"])
def test_labels_that_are_ours_or_none_are_refused(label: str) -> None:
    with pytest.raises(TargetError, match="label"):
        open_target(local("alertmanager", url="http://127.0.0.1:1/", labels={label: "x"}))


def test_alertmanager_must_remember_for_a_while() -> None:
    with pytest.raises(TargetError, match="expires"):
        open_target(local("alertmanager", url="http://127.0.0.1:1/", expires="0 seconds"))


# All


def every(server: Server) -> list[Any]:
    url, hook = server.url(), secret(server.url())
    return [
        open_target(local("pagerduty", routing_key=secret("k"), url=url)),
        open_target(local("alertmanager", url=url)),
        open_target(local("slack", webhook=hook)),
        open_target(local("slack", token=secret("t"), channel="C", url=url)),
        open_target(local("teams", webhook=hook)),
        open_target(local("webhook", url=url)),
    ]


def test_a_trial_says_so_everywhere() -> None:
    with serving(says(200, ok=True, status="success")) as server:
        for target in every(server):
            target.send(notice(trial=True), {})
        assert len(server.requests) == 6
        for request in server.requests:
            text = json.dumps(request.json).lower()
            assert "[trial]" in text
            assert "sent by hand" in text or request.json.get("trial") is True


def test_every_target_refuses_an_address_inside_the_network() -> None:
    url = "https://169.254.169.254/latest"
    for written in (
        options("pagerduty", routing_key=secret("k"), url=url),
        options("alertmanager", url=url),
        options("slack", webhook=secret(url)),
        options("slack", token=secret("t"), channel="C", url=url),
        options("teams", webhook=secret(url)),
        options("webhook", url=url),
        options("email", host="169.254.169.254", sender="a@example.com", to=["b@example.com"]),
    ):
        with pytest.raises(TargetError, match="metadata") as error:
            open_target(written)
        assert error.value.message.startswith(f"alerts to {written.name}: ")


def test_the_log_is_told_as_an_event(caplog: pytest.LogCaptureFixture) -> None:
    target = open_target(options("log"))
    with caplog.at_level(logging.INFO, "weever_stream"):
        target.send(notice(examples=(EXAMPLE,), group={"zip": "a\nb"}), {})
        target.send(notice("resolve"), {})
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", "alert_opened"),
        ("WARNING", "alert_resolved"),
    ]
    fields = caplog.records[0].weever  # type: ignore[attr-defined]
    assert fields["message"] == "zip_determines_city: 12 violations open in packages (zip = a b)"
    assert fields["dedup_key"] == KEY
    assert None not in fields.values()
    written = json.loads(logs.line(0.0, "ERROR", "weever_stream.alerts", "alert_opened", fields))
    assert written["rule"] == "zip_determines_city"
    assert written["examples"] == ["key 17 and key 23: zip 1050 | city Graz"]


# Two jobs, one service


def test_two_jobs_on_one_service_do_not_resolve_each_others_incidents(tmp_path: Path) -> None:
    """Staging and production have the same job file, but for where the checkpoint is."""
    incidents: dict[str, int] = {}
    with serving(says(202, status="success")) as server:
        for stage, still_open in (("staging", 2), ("production", 3), ("staging", 0)):
            text = f"""
table: packages
key: id
source: {{kind: files, path: /in}}
state: {{checkpoint: {tmp_path}/{stage}/checkpoint}}
rules: [{{name: zips, fd: zip -> city}}]
alerts:
  - {{kind: pagerduty, routing_key: "${{env:KEY}}", url: "{server.url()}", allow_hosts: [127.0.0.1], quiet: 0 seconds}}
"""
            job = job_of(read_rules_text(text).resolve({"KEY": "R" * 32}))
            with alerting(job, lambda: True) as (intake,):
                assert isinstance(intake, AlertIntake)
                desk = intake.dispatch.desk
                intake.dispatch.take(news(desk, desk.through + 1, zips=still_open))
            assert server.requests[-1].json["dedup_key"] == f"weever/{job.name}/packages/zips"
    for request in server.requests:
        action, key = request.json["event_action"], request.json["dedup_key"]
        incidents[key] = incidents.get(key, 0) + (1 if action == "trigger" else -1)
    assert len(server.requests) == 3
    assert sorted(incidents.values()) == [0, 1], "what is open in production stays open"

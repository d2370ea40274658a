"""What is logged, line by line.

Catches: lines that a row or a name could forge; lines that are no JSON, or lack what a search needs; events that people
read twice; a log that reaches someone else's handlers, or that stays when the command has ended.
"""

from __future__ import annotations

import fcntl
import json
import logging
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.observe.reports import RULES, report
from weever_stream.cli import run
from weever_stream.cli.progress import BatchLines
from weever_stream.errors import StateError
from weever_stream.job.options import Metrics as Settings
from weever_stream.observe import logs
from weever_stream.observe.watch import watching
from weever_stream.state.lease import Lease
from weever_stream.state.store import StoreOptions

JSON = {"WEEVER_LOG_JSON": "1"}


def read(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_job_logs_its_life_as_json(capsys: pytest.CaptureFixture[str]):
    with logs.to_stderr(JSON), watching("nightly", RULES, Settings(), notice=lambda _: None) as watch:
        watch.query("c0ffee")
        watch.batch(report(7))
        watch.batch(report(8, rejected=0))
        watch.rules_changed(["+ code_is_unique"])
        watch.restart()
    told = read(capsys.readouterr().err)
    assert [line["event"] for line in told] == [
        "job_started", "query_started", "batch_done", "records_rejected", "batch_done", "rules_changed",
        "schema_restart", "job_stopped",
    ]  # fmt: skip
    assert len({line["run_id"] for line in told}) == 1
    assert [line.get("query_id") for line in told] == [None] + ["c0ffee"] * 7
    for line in told:
        assert list(line)[:4] == ["timestamp", "level", "logger", "event"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", line["timestamp"])
        assert (
            abs(datetime.fromisoformat(line["timestamp"][:-1] + "+00:00").timestamp() - datetime.now().timestamp())
            < 600
        )
        assert line["logger"] == "weever_stream.job"
    done, rejected = told[2], told[3]
    assert (rejected["level"], rejected["batch_id"], rejected["records"]) == ("warning", 7, 3)
    numbers = {"changes": 12, "rejected": 3, "added": 2, "removed": 1, "open": 88, "seconds": 1.25}
    assert {name: done[name] for name in numbers} == numbers
    assert told[0]["table"] == "packages"
    assert told[0]["rules"] == 3


def test_lines_for_people_leave_out_what_the_command_tells_anyway(capsys: pytest.CaptureFixture[str]):
    with logs.to_stderr({}), watching("nightly", RULES, Settings(), notice=lambda _: None) as watch:
        watch.batch(report(7))
        watch.restart()
        assert capsys.readouterr().err == ""
        logs.get("alerts").info("alert_sent", target="ops")
        logs.get("alerts").error("alert_failed", "no answer", target="ops", rule="zip_determines_city", status=503)
    told = capsys.readouterr().err
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d error alerts: no answer target=ops rule=zip_determines_city status=503\n", told
    )


def test_the_level_can_be_chosen(capsys: pytest.CaptureFixture[str]):
    for environ, events in (
        ({"WEEVER_LOG_LEVEL": "info"}, ["sent", "slow"]),
        ({**JSON, "WEEVER_LOG_LEVEL": "warning"}, ["slow"]),
        ({**JSON, "WEEVER_LOG_LEVEL": "debug"}, ["tried", "sent", "slow"]),
        ({**JSON, "WEEVER_LOG_LEVEL": "nonsense"}, ["sent", "slow"]),
    ):
        with logs.to_stderr(environ):
            logs.get("alerts").debug("tried")
            logs.get("alerts").info("sent")
            logs.get("alerts").warning("slow")
        lines = capsys.readouterr().err.splitlines()
        assert [next(event for event in ("tried", "sent", "slow") if event in line) for line in lines] == events


@example(text="a\u2028b\u2029c\x85d\u202ee", name="rule")
@given(text=st.text(st.characters(), max_size=60), name=st.sampled_from(["message", "target", "rule"]))
def test_no_text_can_break_a_line_or_forge_one(text: str, name: str):
    told = logs.line(0.5, "INFO", "weever_stream.job", f"e{text}", {name: text, "event": "forged", "level": "forged"})
    assert len(told.splitlines()) <= 1, "whatever ends a line to whoever reads it"
    told.encode("utf-8")
    line = json.loads(told)
    assert line["event"].startswith("e")
    assert line["level"] == "info"
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202e]", "".join(map(str, line.values())))


def test_lines_for_people_cannot_be_forged_either(capsys: pytest.CaptureFixture[str]):
    with logs.to_stderr({}):
        logs.get("alerts").warning(
            "alert_failed", "a\n12:00:00 error: all is lost", target="\x1b[2Jops\r\n", rule="a\u2028b"
        )
    told = capsys.readouterr().err
    assert len(told.splitlines()) == 1
    assert "\x1b" not in told
    assert "\r" not in told


def test_values_of_every_kind_become_json():
    fields = {"whole": 1 << 70, "not_a_number": float("nan"), "endless": float("inf"), "on": True, "none": None, "empty": "",
              "list": ["a\nb", 1], "mapping": {"k\n": "v\t"}, "long": "x" * 5000, "path": Path("/a")}  # fmt: skip
    line = json.loads(
        logs.line(0, "INFO", "l", "e", fields), parse_constant=lambda text: pytest.fail(f"{text} is no JSON")
    )
    assert line["whole"] == 1 << 70
    assert (line["not_a_number"], line["endless"], line["on"]) == ("nan", "inf", True)
    assert "none" not in line
    assert "empty" not in line
    assert line["list"] == ["a b", 1]
    assert line["mapping"] == {"k ": "v "}
    assert len(line["long"]) == 2001
    assert line["path"] == "/a"
    assert line["timestamp"] == "1970-01-01T00:00:00.000000Z"


def test_everything_on_standard_error_is_json_when_a_command_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("WEEVER_LOG_JSON", "1")
    assert run(["run", str(tmp_path / "absent.yaml")]) == 3
    [line] = read(capsys.readouterr().err)
    assert (line["level"], line["event"], line["exit_code"]) == ("error", "failed", 3)
    assert "absent.yaml cannot be read" in line["message"]
    BatchLines().notice("hidden outside of a command")
    assert capsys.readouterr().err == "", "the log ends with the command"


def test_notices_are_events_in_json_and_plain_lines_else(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    BatchLines().notice("starting Spark")
    assert capsys.readouterr().err == "starting Spark\n"
    monkeypatch.setenv("WEEVER_LOG_JSON", "1")
    with logs.to_stderr(), BatchLines().status("starting Spark"):
        pass
    [line] = read(capsys.readouterr().err)
    assert (line["event"], line["message"]) == ("notice", "starting Spark")


def test_a_second_driver_is_logged(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    held = tmp_path / "lease"
    held.write_text(json.dumps({"what": "weever run", "host": "a\nb", "pid": 7, "since": "now"}))
    with held.open() as first, logs.to_stderr(JSON):
        fcntl.flock(first, fcntl.LOCK_EX)
        with pytest.raises(StateError, match="is in use by weever run"):
            Lease(StoreOptions(str(tmp_path))).take()
    [line] = read(capsys.readouterr().err)
    assert (line["event"], line["level"]) == ("lease_refused", "error")
    assert line["holder"] == "weever run on a b, process 7, since now"


def test_a_program_that_has_its_own_logging_gets_the_events(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO, "weever_stream"):
        logs.get("alerts").info("alert_sent", target="ops")
    [record] = caplog.records
    assert (record.name, record.getMessage()) == ("weever_stream.alerts", "alert_sent")
    caplog.clear()
    with logs.to_stderr(JSON):
        logs.get("alerts").info("alert_sent", target="ops")
    assert caplog.records == [], "within the command nobody else prints them again"
    assert logging.getLogger("weever_stream").propagate

"""`weever rules drift`, over the note that a job leaves. Catches a table or JSON that says other than the note does."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest

from tests.learn.test_drift import Feed
from weever_stream.cli import run
from weever_stream.learn.drift import Drift
from weever_stream.state.notes import Notes
from weever_stream.state.store import StoreOptions
from weever_stream.stream.progress import BatchReport, Ledger


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(
        f"""
table: packages
key: code
columns: {{code: bigint, zip: string, city: string}}
source: {{kind: files, path: {tmp_path}/feed}}
rules:
  - {{name: zip_determines_city, fd: zip -> city}}
  - {{name: "red[/red]", unique: [zip, city]}}
state: {{checkpoint: {tmp_path}/checkpoint}}
"""
    )
    return path


def left_by_a_job(folder: Path, drift: Drift) -> None:
    notes = Notes(StoreOptions(f"{folder}/checkpoint/weever"))
    now = datetime(2026, 11, 17, 12, 0, 1, tzinfo=timezone.utc)
    counts = {"zip_determines_city": 1_234, "red[/red]": 0}
    report = BatchReport(
        drift.batch, '{"files":9}', now, 1, 0, 1, 0, counts, 1.0, 0.5, unlisted={"zip_determines_city": 1}
    )
    Ledger(notes, list(counts)).note(report, drift)


def test_rules_that_drift_come_first_and_give_code_6(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    feed = Feed(drift=Drift({"red[/red]": "1", "rule": "2"}))
    feed.run(30_000, 0.0)
    feed.run(4_000, 0.1)
    # The feed calls its rule by its own name; the note has the job's.
    noted = json.loads(
        json.dumps(feed.drift.as_json())
        .replace('"rule": [', '"zip_determines_city": [')
        .replace('"rule": {', '"zip_determines_city": {')
        .replace('"rule": "rule"', '"rule": "zip_determines_city"')
    )
    left_by_a_job(job.parent, Drift.from_json(noted))
    assert run(["rules", "drift", str(job)]) == 6
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["rule", "open", "usual", "lately", "trend"]
    first, second = lines[2].split(), lines[3].split()
    assert first[:3] == ["zip_determines_city", "1,235", "0"]
    assert 85 < float(first[3]) < 115
    assert "█" in first[4]
    assert first[4].startswith("·····")
    assert lines[-2] == "zip_determines_city drifts since day 299, after at 299"
    assert second[:4] == ["red[/red]", "0", "0", "0"]
    assert lines[-1] == '1 of 2 rules drift, as of {"files":9}'
    assert run(["rules", "drift", str(job), "--format", "json"]) == 6
    told = json.loads(capsys.readouterr().out)
    assert (told["table"], told["batch"], told["position"]) == ("packages", feed.batch, '{"files":9}')
    one, other = told["rules"]
    assert (one["name"], one["open"], one["changes"], one["drifting"]["since"]) == (
        "zip_determines_city",
        1235,
        34_000,
        "day 299",
    )
    assert len(one["trend"]) == -(-34_000 // one["bucket"])
    assert other["drifting"] is None


def test_where_nothing_drifts_the_code_is_0(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left_by_a_job(job.parent, Drift({"zip_determines_city": "1"}))
    assert run(["rules", "drift", str(job)]) == 0
    assert "0 of 1 rules drift" in capsys.readouterr().out


def test_a_note_of_a_release_that_knew_no_drift_has_no_rules(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left_by_a_job(job.parent, Drift())
    note = job.parent / "checkpoint" / "weever" / "progress.json"
    noted = json.loads(note.read_text())
    del noted["trends"]
    note.write_text(json.dumps(noted))
    assert run(["rules", "drift", str(job)]) == 0
    assert "0 of 0 rules drift" in capsys.readouterr().out


def test_a_job_that_has_done_nothing_is_told(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "drift", str(job)]) == 3
    shown = capsys.readouterr().err
    assert "no batch is done" in shown
    assert "weever run" in shown


def test_rules_alone_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "--help"]) == 0
    assert "drift" in capsys.readouterr().out
    assert run(["rules", "dirft", "job.yaml"]) == 3
    assert "dirft" in capsys.readouterr().err

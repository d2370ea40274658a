"""`weever alerts`: trials that arrive or do not, what was told, what is silenced. No Spark.

Catches: a trial that says it arrived when it did not; an address that may not be used; a secret in what is printed; a
silence that the job does not find; names that are not there.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.alerts.desks import news
from tests.alerts.servers import answer, serving
from weever_stream.alerts.desk import Desk
from weever_stream.alerts.dispatch import ALERTS, SILENCES, silences_of, utc_now, written_silences
from weever_stream.cli import run
from weever_stream.job.alerts import Silence
from weever_stream.job.job import Job, read_job
from weever_stream.job.routes import routes_of
from weever_stream.state.notes import Notes
from weever_stream.stream.places import notes_of

JOB = """
table: packages
key: id
source: {{kind: files, path: /nowhere}}
state: {{checkpoint: {folder}/checkpoint}}
rules:
  - {{name: zips, fd: zip -> city}}
  - {{name: codes, unique: code, severity: critical}}
alerts:
{alerts}
"""


def job(folder: Path, *alerts: str) -> str:
    path = folder / "job.yaml"
    lines = "\n".join(f"  - {one}" for one in alerts)
    path.write_text(JOB.format(folder=folder, alerts=lines or "  []"))
    return str(path)


def hook(port: int, **more: str) -> str:
    said = {"kind": "webhook", "url": f'"http://127.0.0.1:{port}/${{env:HOOK}}"', "allow_hosts": "[127.0.0.1]", **more}
    return "{" + ", ".join(f"{name}: {value}" for name, value in said.items()) + "}"


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", "WEEVERSECRET123")


def alerts(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run(["alerts", *words])
    said = capsys.readouterr()
    assert "WEEVERSECRET123" not in said.out + said.err
    return code, said.out, said.err


def test_a_trial_is_opened_and_resolved(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with serving(answer(200)) as server:
        code, out, _ = alerts(capsys, "test", job(tmp_path, hook(server.port), "{kind: log, min_severity: critical}"))
        assert code == 0
        assert out.splitlines() == [
            "webhook (webhook): arrived; hears of 2 rules",
            "log (log): arrived; hears of 1 rule",
        ]
        assert len(server.requests) == 2
        assert all(b"trial" in request.body for request in server.requests)
        assert server.requests[0].path == "/WEEVERSECRET123"


def test_a_trial_that_does_not_arrive_is_told_with_code_4(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        path = job(tmp_path, hook(nobody.getsockname()[1]), "{kind: log}")
        code, out, _ = alerts(capsys, "test", path)
        assert code == 4
        assert "webhook (webhook): did not arrive: " in out
        assert "log (log): arrived" in out
        code, out, _ = alerts(capsys, "test", path, "--format", "json")
        assert [one["arrived"] for one in json.loads(out)] == [False, True]
        assert alerts(capsys, "test", path, "--target", "log")[0] == 0


def test_an_address_that_may_not_be_used_is_told_and_the_others_are_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    code, out, _ = alerts(capsys, "test", job(tmp_path, '{kind: webhook, url: "https://127.1/x"}', "{kind: log}"))
    assert code == 4
    assert "webhook (webhook): did not arrive: " in out
    assert "log (log): arrived" in out


@pytest.mark.parametrize(
    ("targets", "words", "said"),
    [
        ([], ["test"], "has no `alerts`"),
        (["{kind: log}"], ["test", "--target", "lag"], "there is no target lag"),
        (["{kind: log}"], ["history", "--rule", "zip"], "there is no rule zip"),
        (["{kind: log}"], ["silence"], "--for"),
        (["{kind: log}"], ["silence", "--for", "1 hour", "--target", "log"], "No such option: --target"),
        (["{kind: log}"], ["list", "--since", "1 day"], "No such option: --since"),
        (["{kind: log}"], ["silence", "--for", "1 hour", "--why", "x" * 501], "--why"),
        (["{kind: log, mask: [ssn]}"], ["test"], "mask a column ssn"),
        (["{kind: log, rules: [zip]}"], ["test"], "name a rule zip"),
        (["{kind: log}", "{kind: log}"], ["test"], "two targets are named log"),
    ],
)
def test_what_cannot_be_done_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], targets: list[str], words: list[str], said: str
):
    code, _, err = alerts(capsys, words[0], job(tmp_path, *targets), *words[1:])
    assert code == 3
    assert said in err


def noted(path: str) -> tuple[Job, Notes]:
    """A job that has told of one rule, and has held another back."""
    asked = read_job(path, {})
    notes = Notes(notes_of(asked))
    desk = Desk("packages", routes_of(asked.alerts, asked.file.rules), job="nightly")
    desk.take(news(desk, 0, zips=12))
    (want,), _ = desk.wants(utc_now())
    notice = desk.sending(want, utc_now())
    desk.delivered(want, notice, {}, utc_now())
    notes.write(ALERTS, desk.noted())
    return asked, notes


def test_what_is_open_and_what_was_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = job(tmp_path, "{kind: log}")
    noted(path)
    code, out, _ = alerts(capsys, "list", path)
    assert code == 0
    assert out.splitlines()[2].split()[:4] == ["log", "zips", "12", "open"]
    code, out, _ = alerts(capsys, "history", path, "--format", "json")
    (event,) = json.loads(out)
    assert (event["event"], event["rule"], event["open"]) == ("open", "zips", 12)
    assert json.loads(alerts(capsys, "history", path, "--format", "json", "--since", "2999-01-01")[1]) == []
    assert "nothing was told" in alerts(capsys, "history", path, "--rule", "codes")[1]
    found: Any = json.loads(alerts(capsys, "list", path, "--format", "json")[1])
    assert [one["rule"] for one in found["alerts"]] == ["zips"]


def test_silences_are_written_where_the_job_finds_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = job(tmp_path, "{kind: log}")
    _, notes = noted(path)
    code, out, _ = alerts(capsys, "silence", path, "--for", "2 hours", "--rule", "zips", "--why", "moving house")
    assert code == 0
    assert out.startswith("silenced: zips until ")
    assert out.endswith(": moving house\n")
    (silence,) = silences_of(notes)
    assert silence.covers("zips", utc_now())
    assert not silence.covers("codes", utc_now())
    assert "silenced: zips" in alerts(capsys, "list", path)[1]
    assert alerts(capsys, "unsilence", path, "--rule", "codes")[1] == "nothing was silenced\n"
    assert alerts(capsys, "unsilence", path)[1] == "1 silence ended\n"
    assert silences_of(notes) == []


def test_a_silence_that_is_over_is_neither_listed_nor_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = job(tmp_path, "{kind: log}")
    _, notes = noted(path)
    notes.write(SILENCES, written_silences([Silence.model_validate({"until": "2020-01-01"})]))
    assert "silenced" not in alerts(capsys, "list", path)[1]
    assert json.loads(alerts(capsys, "list", path, "--format", "json")[1])["silences"] == []
    assert alerts(capsys, "unsilence", path)[1] == "nothing was silenced\n"


def test_only_silences_of_the_chosen_rules_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = job(tmp_path, "{kind: log}")
    alerts(capsys, "silence", path, "--for", "2 hours", "--rule", "zips")
    assert "silenced" not in alerts(capsys, "list", path, "--rule", "codes")[1]
    assert "silenced: zips" in alerts(capsys, "list", path, "--rule", "zips")[1]
    alerts(capsys, "silence", path, "--for", "2 hours")
    assert "silenced: all rules" in alerts(capsys, "list", path, "--rule", "codes")[1]


def test_ending_the_silence_of_a_rule_leaves_the_others_silenced(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = job(tmp_path, "{kind: log}")
    _, notes = noted(path)
    alerts(capsys, "silence", path, "--for", "2 hours", "--rule", "zips", "--rule", "codes", "--why", "moving house")
    (before,) = silences_of(notes)
    code, out, _ = alerts(capsys, "unsilence", path, "--rule", "zips")
    assert code == 0
    assert out.startswith("still silenced: codes until ")
    (left,) = silences_of(notes)
    assert (left.rules, left.until, left.why) == (["codes"], before.until, "moving house")
    assert alerts(capsys, "unsilence", path, "--rule", "zips")[1] == "nothing was silenced\n"
    alerts(capsys, "silence", path, "--for", "2 hours")  # all of them
    alerts(capsys, "unsilence", path, "--rule", "zips")
    assert [one.rules for one in silences_of(notes)] == [["codes"], ["codes"]]
    assert alerts(capsys, "unsilence", path, "--rule", "codes")[1] == "2 silences ended\n"
    assert silences_of(notes) == []


@pytest.mark.parametrize(
    ("silenced", "ended", "left"),
    [
        (["a", "b"], ["a"], ["b"]),
        (["a"], ["a"], None),
        (["a"], ["b"], ["a"]),
        (["a"], ["a.y"], ["a.x"]),  # of a rule for two columns one is heard again
        (["a.x"], ["a"], None),
        (["a.x", "b"], ["a"], ["b"]),
        ([], ["a"], ["b"]),
        ([], ["a", "b"], None),
        (["gone"], ["a"], ["gone"]),
    ],
)
def test_what_is_left_of_a_silence(silenced: list[str], ended: list[str], left: list[str] | None):
    silence = Silence.model_validate({"rules": silenced, "until": "2999-01-01"})
    found = silence.without(ended, ["a.x", "a.y", "b"])
    assert (found and found.rules) == left

"""`weever rules review` over notes as a learning job leaves them.

Catches: a rule that comes into the file without being asked for, or under a name that is taken; other lines of the file
that change, or its rights; a decision that is forgotten; a file that somebody changed in the meantime and that is
overwritten with what it was.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

from weever_stream.cli import run
from weever_stream.errors import RuleError
from weever_stream.job.job import read_job
from weever_stream.learn import decisions
from weever_stream.learn.about import ABOUT, About
from weever_stream.learn.events import RuleEvent
from weever_stream.learn.holding import HOLDING, Holding, Moment
from weever_stream.rules import parse_rule, read_rules
from weever_stream.state.notes import Notes
from weever_stream.stream.places import learn_notes_of

JOB = """# the job of packages
table: packages
key: id
rules:
  - name: zip_determines_city   # since 2019
    fd: zip -> city

source: {kind: files, path: /in}  # from the lake
state: {checkpoint: CHECKPOINT}
learn: {}
"""
CITY, RISE, KEY = (
    "t.zip = s.zip and t.city != s.city",
    "t.price > s.price and t.weight < s.weight",
    "t.zip = s.zip and t.price = s.price",
)
REST = "t.zip = s.zip and t.city != s.city and t.price = s.price"
AT = [Moment(batch, f'{{"files":{batch}}}', "2026-03-01T00:00:00+00:00") for batch in range(3)]
SPACE = {"columns": None, "max_predicates": 4, "cross": False, "order_text": False}
SCHEMA = pa.schema(
    [("id", pa.int64()), ("zip", pa.int64()), ("city", pa.string()), ("weight", pa.int64()), ("price", pa.int64())]
)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job file beside which rules were learned: one in force holds, two are new."""
    path = tmp_path / "job.yaml"
    path.write_text(JOB.replace("CHECKPOINT", str(tmp_path / "checkpoint")))
    notes = notes_of(path)
    notes.write(ABOUT, About("packages", "files", ("id",), SPACE, SCHEMA).to_json())
    notes.write(HOLDING, held(CITY, RISE, KEY).to_json())
    return path


def notes_of(path: Path) -> Notes:
    return Notes(learn_notes_of(read_job(path, {})))


def held(*denials: str) -> Holding:
    named = {
        CITY: "zip_determines_city",
        RISE: "weight_and_price_rise",
        KEY: "price_is_unique_within_zip",
        REST: "rest",
    }
    rules = [(parse_rule(deny, name=named[deny]), named[deny].replace("_", " ")) for deny in denials]
    empty = Holding("packages", "query", 0, ("zip", "city", "weight", "price"), AT[0])
    return empty.advanced(rules, 10, AT[0])


def review(*arguments: str, code: int = 0) -> None:
    assert run(["rules", "review", *arguments]) == code


def test_what_is_learned_and_not_in_force_is_listed(job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    review(str(job))
    said = capfd.readouterr().out
    assert "3 minimal rules hold in 10 rows" in said
    assert "Proposed: 2" in said
    assert "weight and price rise" in said
    assert "zip_determines_city" not in said, "it is in force"
    assert read_rules(job).rules[0].name == "zip_determines_city", "nobody asked to change anything"


def test_adopting_writes_the_rule_and_leaves_all_other_lines(job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    os.chmod(job, 0o640)
    before = job.read_text()
    review(str(job), "--adopt", "weight_and_price_rise")
    said = capfd.readouterr().out
    assert "weever plan" in said
    assert "weever run" in said
    assert "--rule-changes allow" in said
    after = job.read_text()
    added = "  - name: weight_and_price_rise\n    deny: " + RISE + "\n    severity: warning\n"
    added += "    description: Weight and price rise.\n"
    assert after == before.replace("    fd: zip -> city\n", "    fd: zip -> city\n" + added)
    assert job.stat().st_mode & 0o777 == 0o640
    review(str(job), "--list", "--format", "json")
    told = json.loads(capfd.readouterr().out)
    assert [one["name"] for one in told["proposed"]] == ["price_is_unique_within_zip"]
    assert [one["name"] for one in told["adopted"]] == ["weight_and_price_rise"]
    review(str(job), "--adopt", "weight_and_price_rise", code=3)
    assert "has this rule already" in capfd.readouterr().err
    assert job.read_text() == after


def test_what_is_rejected_is_not_proposed_until_it_is_reconsidered(
    job: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    review(str(job), "--reject", "price_is_unique_within_zip")
    notes_of(job).write(HOLDING, held(KEY, RISE).to_json())
    capfd.readouterr()
    review(str(job), "--format", "json")
    assert [one["name"] for one in json.loads(capfd.readouterr().out)["proposed"]] == ["weight_and_price_rise"]
    review(str(job), "--reconsider", "price_is_unique_within_zip")
    review(str(job), "--list")
    assert "Proposed: 2" in capfd.readouterr().out
    review(str(job), "--reconsider", "price_is_unique_within_zip", code=3)
    assert "no rule is rejected" in capfd.readouterr().err


def test_a_rule_in_force_that_no_longer_holds_is_told_with_its_pair(
    job: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pair = ("3", "4", '{"city":"Ede","zip":1}', '{"city":"Epe","zip":1}')
    gone = RuleEvent.of("dropped", parse_rule(CITY, name="zip_determines_city"), "zip determines city", pair=pair)
    rules = [(parse_rule(REST, name="rest"), "the rest")]
    notes_of(job).write(HOLDING, held(CITY).advanced(rules, 11, AT[1]).without([gone]).to_json())
    review(str(job), "--list")
    said = capfd.readouterr().out
    assert "no longer true of the table:\n  - zip_determines_city since" in said
    assert 'because of row 3 {"city":"Ede","zip":1} and row 4 {"city":"Epe","zip":1}' in said
    assert "what remains of it: rest" in said
    assert "Proposed: 1" in said
    assert "weever violations --rule zip_determines_city" in said


def test_a_name_that_is_taken_is_refused_and_the_lines_are_shown(job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    job.write_text(job.read_text().replace("name: zip_determines_city", "name: weight_and_price_rise"))
    before = job.read_text()
    review(str(job), "--adopt", "weight_and_price_rise", code=3)
    said = capfd.readouterr()
    assert "another rule that is called weight_and_price_rise" in said.err
    assert "  - name: weight_and_price_rise\n    deny:" in said.out
    assert job.read_text() == before


def test_a_file_that_cannot_be_edited_is_left_alone_and_the_lines_are_shown(
    job: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = job.read_text().replace("rules:\n  - name: zip_determines_city   # since 2019\n    fd: zip -> city\n", "")
    job.write_text(text + "rules: [{name: zip_determines_city, fd: zip -> city}]\n")
    before = job.read_text()
    review(str(job), "--adopt", "weight_and_price_rise", code=3)
    said = capfd.readouterr()
    assert "line by line" in said.err
    assert "- name: weight_and_price_rise" in said.out
    assert job.read_text() == before


def test_what_somebody_else_writes_meanwhile_stays(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = held(RISE).rules[0].rule()
    real = decisions.add_rule

    def slowly(content: bytes | str, *given: object, **named: object) -> str:
        text = real(content, *given, **named)  # type: ignore[arg-type]
        job.write_text(job.read_text() + "# by somebody else\n")
        return text

    monkeypatch.setattr(decisions, "add_rule", slowly)
    with pytest.raises(RuleError, match="somebody else"):
        decisions.adopt(job, rule)
    monkeypatch.undo()
    decisions.adopt(job, rule)
    assert "# by somebody else" in job.read_text()
    assert [one.name for one in read_rules(job).rules] == ["zip_determines_city", "weight_and_price_rise"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--list", "--adopt", "weight_and_price_rise"], "--list only shows"),
        (["--adopt", "weight_and_price_rises"], "did you mean weight_and_price_rise"),
        (["--reject", "x"], "--list shows"),
    ],
)
def test_a_name_that_nobody_learned_is_refused(
    job: Path, asked: list[str], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    review(str(job), *asked, code=3)
    assert said in capfd.readouterr().err


def test_before_anything_was_learned_it_says_so(job: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    job.write_text(job.read_text().replace(str(tmp_path / "checkpoint"), str(tmp_path / "other")))
    review(str(job), code=3)
    assert "nothing was learned yet" in capfd.readouterr().err


def test_at_a_terminal_each_proposal_is_asked_for(job: Path) -> None:
    import pty
    import subprocess
    import sys

    main, end = pty.openpty()
    command = [sys.executable, "-m", "weever_stream.cli", "rules", "review", str(job)]
    process = subprocess.Popen(command, stdin=end, stdout=end, stderr=end, close_fds=True)
    os.close(end)
    seen = b""
    for answer in (b"r\n", b"a\n"):
        while seen.count(b"[a/r/s/q]") < (1 if answer == b"r\n" else 2):
            seen += os.read(main, 1000)
        os.write(main, answer)
    assert process.wait(60) == 0
    os.close(main)
    (rejected,) = decisions.Decisions.read(notes_of(job)).rejected
    (adopted,) = read_rules(job).rules[1:]
    assert {rejected.name, adopted.name} == {"weight_and_price_rise", "price_is_unique_within_zip"}

"""What `learn` and `run` print of a batch that changed learned rules. Catches a count of rules that are not named."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

import pytest

from weever_stream.cli.lessons import LessonLines, pair_told, report_lines
from weever_stream.learn.events import RuleEvent
from weever_stream.stream.lessons import LearnReport


def report(*events: RuleEvent) -> LearnReport:
    at = datetime(2026, 11, 17, 12, tzinfo=timezone.utc)
    return LearnReport(3, '{"version":4}', at, 2, 0, 90, 7, events, first=False, seconds=0.5)


def event(kind: str, rule: str) -> RuleEvent:
    pair = ("5", "3", '{"zip":"9711"}', '{"zip":"9711"}')
    return RuleEvent(kind, rule, rule, "t.a = s.a", f"words of {rule}", None, *pair)  # type: ignore[arg-type]


def test_every_rule_that_was_dropped_is_named_without_values_beside_a_job() -> None:
    lines = report_lines(report(event("dropped", "zip_determines_city")), pairs=False)
    assert "rules +0 -1  7 hold in 90 rows" in lines[0]
    assert lines[1:] == ["  - zip_determines_city: words of zip_determines_city"]
    with_pairs = report_lines(report(event("dropped", "zip_determines_city")))
    assert with_pairs[2] == '      because of row 5 {"zip":"9711"} and row 3 {"zip":"9711"}'


def test_a_pipe_gets_whole_values_and_a_terminal_whole_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    key, values = "k" * 200, "v" * 200
    one = replace(event("dropped", "x"), left_key=key, left_values=values, right_key=None)
    assert pair_told(one) == f"because of row {key} {values}"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert pair_told(one) == f"because of row {key} {values[:119]}…"


def test_what_is_not_named_is_counted_by_kind(capsys: pytest.CaptureFixture[str]) -> None:
    events = [event("dropped", f"d{at}") for at in range(3)] + [event("added", f"a{at}") for at in range(2)]
    LessonLines(shown=2).batch(report(*events))
    printed = capsys.readouterr().out.splitlines()
    assert "rules +2 -3" in printed[0]
    assert [line.split(":")[0] for line in printed if line[2:3] in "+-"] == ["  - d0", "  - d1"]
    assert printed[-1] == "  and 3 more: 1 dropped, 2 added"
    assert report_lines(report(*events), 0)[1].startswith("  - d0"), "one is always named"

"""A report for people: what differs looks different, and each value stands in the half of its row."""

from __future__ import annotations

from pathlib import Path

import pytest

from weever_stream.cli import run
from weever_stream.cli.show import printable


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def shown(capfd: pytest.CaptureFixture[str], deny: str, rows: str) -> list[str]:
    """What is printed of the violations of one rule, and the last line."""
    Path("rules.yaml").write_text(f'table: rows\nrules:\n  - name: rule\n    deny: "{deny}"\n')
    Path("rows.csv").write_text(rows)
    run(["check", "rules.yaml", "rows.csv"])
    out = capfd.readouterr().out
    return out[out.index("\n\n") + 2 :].splitlines()[1:]


def test_a_condition_on_one_row_of_a_pair_stands_in_its_half(capfd: pytest.CaptureFixture[str]) -> None:
    assert shown(capfd, "t.k = s.k and t.n > 5 and s.v < s.w and s.w = 'x y'", "k,n,v,w\n7,6,a,a\n7,1,b,x y\n") == [
        "  _row  1         _row  2",
        "    k   7      =  k     7",
        "    n   6 > 5",
        "                  v     b < w x y",
        "                  w     x y = 'x y'",
        "",
        "rows: 2 rows, 1 rule, 1 violated",
    ]


def test_a_rule_on_one_row_shows_values_and_constants(capfd: pytest.CaptureFixture[str]) -> None:
    assert shown(capfd, "t.v < t.w and t.n > 5 and t.v = ''", 'n,v,w\n6,"",x \n') == [
        "  _row  1",
        "    n   6   >  5",
        "    v   ''  <  w   'x '",
        "    v   ''  =  ''",
        "",
        "rows: 1 row, 1 rule, 1 violated",
    ]


def test_long_values_are_shown_from_where_they_differ(capfd: pytest.CaptureFixture[str]) -> None:
    rows = "k,v\n1," + "x" * 60 + "left" + "z" * 60 + "\n1," + "x" * 60 + "right\n"
    line = shown(capfd, "t.k = s.k and t.v != s.v", rows)[2]
    assert line.split() == ["v", "…xxxxxxxxxxleft" + "z" * 24 + "…", "≠", "v", "…xxxxxxxxxxright"]
    line = shown(capfd, "t.k = s.k and t.v != s.v", "k,v\n1," + "x" * 60 + "\n1," + "x" * 70 + "\n")[2]
    assert line.split() == ["v", "…" + "x" * 10, "≠", "v", "…" + "x" * 20]


def test_texts_that_would_look_like_others_are_quoted() -> None:
    assert [printable(text) for text in ("a", "", " ", "a ", "\ta", None, 0)] == [
        "a", "''", "' '", "'a '", "'\\ta'", "null", "0",
    ]  # fmt: skip

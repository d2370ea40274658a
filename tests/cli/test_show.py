"""A report for people: what differs looks different, and each value stands in the half of its row."""

from __future__ import annotations

from pathlib import Path

import pytest

from weever_stream.cli import run
from weever_stream.cli.show import printable
from weever_stream.drawing import WIDTH, draw_pair
from weever_stream.rules import parse_rule


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


def test_a_terminal_shows_long_values_from_where_they_differ() -> None:
    predicates = parse_rule("t.v != s.v").predicates

    def line(left: str, right: str) -> list[str]:
        return draw_pair([], {"t": {"v": left}, "s": {"v": right}}, predicates, width=WIDTH).plain.split()

    ours, theirs = "x" * 60 + "left" + "z" * 60, "x" * 60 + "right"
    assert line(ours, theirs) == ["v", "…xxxxxxxxxxleft" + "z" * 24 + "…", "≠", "v", "…xxxxxxxxxxright"]
    assert line("x" * 60, "x" * 70) == ["v", "…" + "x" * 10, "≠", "v", "…" + "x" * 20]


def test_a_pipe_gets_names_keys_constants_and_values_whole(capfd: pytest.CaptureFixture[str]) -> None:
    name, key, value = "n" * 50, "k" * 50, "v" * 60 + "\x1b"
    rows = f"id,{name}\n{key}1,{value}a\n{key}2,{value}b\n"
    rule = f"{{name: rule, deny: \"t.{name} != s.{name} and t.{name} != '{'c' * 50}'\"}}"
    Path("rules.yaml").write_text(f"table: rows\nkey: id\nrules: [{rule}]\n")
    Path("rows.csv").write_text(rows)
    run(["check", "rules.yaml", "rows.csv"])
    out = capfd.readouterr().out
    shown = value.replace("\x1b", "\\x1b")
    pair = out[out.index("  id ") :].splitlines()
    assert pair[0].split() == ["id", f"{key}1", "id", f"{key}2"]
    assert pair[1].split() == [name, f"{shown}a", "≠", name, f"{shown}b"]
    assert pair[2].split() == [name, f"{shown}a", "≠", f"'{'c' * 50}'"]
    assert "…" not in out


def test_a_terminal_never_cuts_names_and_keys() -> None:
    name, key = "n" * 50, "k" * 50
    drawn = draw_pair([(name, key, None)], {"t": {name: "v" * 50}}, None, width=WIDTH).plain.split()
    assert drawn == [name, key, name, "v" * 39 + "…"]


def test_texts_that_would_look_like_others_are_quoted() -> None:
    assert [printable(text) for text in ("a", "", " ", "a ", "\ta", None, 0)] == [
        "a", "''", "' '", "'a '", "'\\ta'", "null", "0",
    ]  # fmt: skip

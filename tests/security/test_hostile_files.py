"""Rule and job files that are written to hurt: refused at once, in few words, or read and shown without harm.

`tests/rules/test_file.py` has bombs, tags, depth and long expressions. Catches here: limits that are passed by what one
line expands to; numbers that no reader of ours or of Python's takes; an error as long as the file; escape sequences
that reach the terminal; names that break out of the SQL that is written for people; memory without bound.
"""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

import weever_stream.rules.file as file_module
from weever_stream.cli import run
from weever_stream.errors import RuleError, RuleErrors
from weever_stream.job.job import job_of
from weever_stream.rules import ColumnType, bind, parse_rule, read_rules, read_rules_text, write_sql
from weever_stream.rules.nodes import MAX_BYTES

JOB = (
    "table: x\nkey: id\nrules:\n  - {name: a, fd: a -> b}\n"
    "source: {kind: files, path: /x}\nstate: {checkpoint: /x}\ntrigger: 1 second\n"
)
FEW = 500
"""The limit on rules while these tests run: reading so many as it allows takes half a minute."""
DEPENDENTS = ", ".join(f"c{i}" for i in range(100))
HOSTILE = {
    "a key twice": ("table: x\ntable: y\nrules: []", "is written twice"),
    "a key of a rule twice": ("table: x\nrules:\n  - {name: a, name: b, fd: a -> b}", "is written twice"),
    "few lines, many rules": (
        "table: x\nrules:\n" + "".join(f"  - {{name: r{i}, fd: 'a{i} -> {DEPENDENTS}'}}\n" for i in range(60)),
        f"more than {FEW:,} rules",
    ),
    "many rules": ("table: x\nrules:\n" + "  - {name: a, fd: a -> b}\n" * (FEW + 1), f"more than {FEW:,} rules"),
    "a decimal of many digits": (f"table: x\ncolumns: {{a: 'decimal({'9' * 250})'}}\nrules: []", "not a type"),
    "a decimal of too many": (f"table: x\ncolumns: {{a: 'decimal({'9' * 5000})'}}\nrules: []", "too long"),
    "a number of many digits": (f"table: x\nrules:\n  - {{name: a, deny: t.a = {'9' * 9000}}}", "1,000 are the limit"),
    "an exponent": ("table: x\nrules:\n  - {name: a, deny: t.a = 1e999999999}", "too large"),
    "a spread": (f"table: x\nrules:\n  - {{name: a, fd: a -> b, spread: {'9' * 5000}}}", "integer"),
    "a long wait": (JOB.replace("1 second", "9" * 400 + " seconds"), "at most"),
    "a longer wait": (JOB.replace("1 second", "9" * 5000 + " days"), "at most"),
    "no wait": (JOB.replace("1 second", "s" * 5000), "is no duration"),
    "shards": (JOB.replace("/x}\ntrigger", "/x, shards: 1e999}\ntrigger"), "finite"),
    "a share": (JOB.replace("path: /x}", "path: /x, rejects: {max_share: .inf}}"), "max_share"),
    "a merge into itself": ("a: &a\n  <<: *a\ntable: x\nrules: []", "no anchor"),
    "a list as a key": ("table: x\n? [a, b]\n: 1\nrules: []", "must be text"),
    "a NUL": ("table: \0x\nrules: []", "control characters"),
    "half a surrogate": ('table: "\\ud800"\nrules: []', "Unicode"),
    "another encoding": ("table: x\nrules: []".encode("utf-16"), "not UTF-8"),
    "an unknown field with an escape": ('table: x\n"a\\e[31m": 1\nrules: []', "there is no field"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_in_few_words(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(file_module, "MAX_RULES", FEW)
    text, said = HOSTILE[name]
    with pytest.raises(RuleError) as caught:
        job_of(read_rules_text(text, path="hostile.yaml"))
    shown = caught.value.render()
    assert said in shown
    assert len(shown) < 2_000
    assert shown.replace("\n", "").isprintable()
    assert "hostile.yaml" in shown


def test_of_very_many_errors_the_first_are_shown():
    items = "".join(f"  - {{name: r{i}, deny: t.a}}\n" for i in range(150))
    with pytest.raises(RuleErrors) as caught:
        read_rules_text(f"table: x\nrules:\n{items}", path="hostile.yaml")
    assert len(caught.value.errors) == 150
    shown = caught.value.render()
    assert shown.count("hostile.yaml:") == 100
    assert shown.endswith("… and 50 errors more")


@pytest.mark.parametrize("size", [10_000_000, 200_000_000])
def test_the_size_of_a_file_is_no_size_in_memory(size: int, tmp_path: Path):
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.write(b"table: x\nrules: []\n#")
        file.truncate(size)  # the disk keeps nothing of it
    tracemalloc.start()
    try:
        with pytest.raises(RuleError, match="is larger than 4,000,000 bytes"):
            read_rules(path)
        assert tracemalloc.get_traced_memory()[1] < 5 * MAX_BYTES
    finally:
        tracemalloc.stop()


def test_no_escape_sequence_reaches_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "rules.yaml"
    path.write_text(
        'table: "a\\e[31m[bold]"\nkey: "k\\e[32m"\ncolumns: {"k\\e[32m": int, "c\\e[33m\\nc": int, b: string}\nrules:\n'
        '  - {name: "r[red]", unique: ["c\\e[33m\\nc"], description: "d\\e[34m", owner: "o\\e[35m"}\n'
        "  - {name: r2, deny: \"t.b = 'x\\e[36m' and s.b = 'y'\"}\n"
        '  - {name: r3, unique: ["k\\e[32m"]}\n'
    )
    for command in ("validate", "explain"):
        assert run([command, str(path)]) == 0
        told = capsys.readouterr()
        assert "\x1b" not in told.out + told.err, command
        assert "r[red]" in told.out, "what looks like markup is text"
        assert "\\x1b[33m\\nc" in told.out, "and what was there is shown"


def test_names_and_texts_stay_inside_their_quotes_in_sql():
    rule = parse_rule("""t."a` = 1; drop table x; --" = s."a` = 1; drop table x; --" and t.b = 'it\\''s; drop -- '""")
    said = write_sql(rule, table="lake.x`; drop table y; --", key=("k`y",))
    column = "`a`` = 1; drop table x; --`"
    table = "lake.`x``; drop table y; --`"
    assert said == (
        f"SELECT t.*, s.* FROM {table} t JOIN {table} s ON t.`k``y` <> s.`k``y` "
        f"AND t.{column} = s.{column} AND t.b = 'it\\\\\\'s; drop -- '"
    )


@pytest.mark.parametrize(
    "kind", ["binary", "struct<a: int32>", "list<item: string>", "map<string, string>", "variant", "void"]
)
def test_a_column_that_cannot_be_compared_is_refused_by_name_and_type(kind: str):
    for text in ("t.c = s.c", "t.c < s.c", "t.c = 'x'", "t.a = s.a and t.c != s.c"):
        with pytest.raises(RuleError) as caught:
            bind(parse_rule(text, name="r"), {"a": ColumnType("integer"), "c": kind})
        assert kind in caught.value.render()
        assert "c" in caught.value.message

"""Names that are reserved. Catches: an entry point that takes a user's column for one of ours, and answers wrongly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from weever_stream import Detector, discover, fd, order, parse_rule, unique
from weever_stream.check import check
from weever_stream.errors import DataError, RuleError
from weever_stream.learn import ErrorWatch, Learner
from weever_stream.rules import Column, read_rules_text

NAMES = ["_weever_level_0", "_weever_luck", "_weever_left", "_weever_change", "_weever_", "_Weever_Change"]
ROWS = 4


def table(name: str) -> pa.Table:
    return pa.table({"id": range(ROWS), name: [1, 1, 2, 2], "c": [1, 2, 3, 4]})


ENTRIES: dict[str, Callable[[str], Any]] = {
    "an expression": lambda name: parse_rule(f"t.c = s.c and t.{name} != s.{name}"),
    "a constant": lambda name: parse_rule(f"t.{name} = 1"),
    "unique": lambda name: unique(name),
    "fd": lambda name: fd("c", name),
    "order": lambda name: order(name, "c"),
    "a filter": lambda name: parse_rule("t.c = s.c", filter=f"{name} = 1"),
    "a rule made by hand": lambda name: Detector([_by_hand(name)], key="id").insert(table(name)),
    "Detector's rule": lambda name: Detector([f"t.{name} = s.{name}"], key="id", max_pairs=1).insert(table(name)),
    "Detector's key": lambda name: Detector(["t.c = s.c"], key=["id", name]).insert(table(name)),
    "check's rule": lambda name: check(f"t.{name} = s.{name}", table(name)),
    "check's key": lambda name: check("t.c = s.c", table(name), key=name),
    "discover": lambda name: discover(table(name)),
    "discover's columns": lambda name: discover(table(name), columns=[name]),
    "Learner": lambda name: Learner(table(name), key="id"),
    "Learner's key": lambda name: Learner(table(name), key=name),
    "ErrorWatch": lambda name: ErrorWatch.discover(table(name), "id"),
}


def _by_hand(name: str) -> Any:
    sound = parse_rule("t.c = s.c and t.id != s.id")
    predicates = tuple(replace(one, left=Column("t", name), right=Column("s", name)) for one in sound.predicates)
    return replace(sound, predicates=predicates[:1])


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_reserved_name_is_refused(entry: str):
    for name in NAMES:
        with pytest.raises((RuleError, DataError)) as raised:
            ENTRIES[entry](name)
        assert raised.value.message == f"a column cannot be named {name}"
        assert "_weever_ are reserved" in str(raised.value.hint)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("table: x\nrules:\n  - {name: a, unique: id}\nkey: _weever_luck\n", 4),
        ("table: {name: x, key: [id, _weever_luck]}\nrules:\n  - {name: a, unique: id}\n", 1),
        ("table: x\nrules:\n  - {name: a, unique: id}\ncolumns:\n  id: bigint\n  _weever_luck: bigint\n", 6),
        ("table: x\nrules:\n  - name: a\n    deny: t._weever_luck = s._weever_luck\n", 4),
        ("table: x\nrules:\n  - name: a\n    unique: [id, _weever_luck]\n", 4),
    ],
)
def test_a_rule_file_says_where_the_name_is(text: str, line: int):
    with pytest.raises(RuleError, match="_weever_luck") as raised:
        read_rules_text(text)
    assert raised.value.place is not None
    assert raised.value.place.line == line


def test_columns_that_nothing_reads_do_no_harm():
    rows = table("_weever_level_0")
    detector = Detector(["t.c != s.c"], key="id", max_pairs=1)
    detector.insert(rows)
    assert (
        detector.count("rule_1") == check("t.c != s.c", rows, key="id").results[0].violations == ROWS * (ROWS - 1) // 2
    )
    assert discover(rows, columns=["id", "c"]).columns == ("id", "c")


def test_names_that_only_look_alike_are_columns():
    for name in ("weever_luck", "_weever", "_weevers", "x_weever_luck"):
        assert len(Detector([f"t.{name} = s.{name}"], key="id", max_pairs=10).insert(table(name)).added) == 2


def test_every_name_of_ours_is_reserved():
    from weever_stream.detect.families import LEFT, RIGHT
    from weever_stream.detect.flood import LUCK, mark_of
    from weever_stream.feeds.changes import CONTROL
    from weever_stream.rules.reserved import is_reserved

    assert all(map(is_reserved, [LEFT, RIGHT, LUCK, mark_of(0), *CONTROL]))


def test_keys_may_have_the_names_that_rescaling_once_used():
    from weever_stream.feeds.changes import CHANGE, PUT, SEQUENCE
    from weever_stream.stream.recut import _once

    rows = pa.table({"_place": [1, 1], "_order": [2, 2], "a": [3, 4], CHANGE: pa.array([PUT] * 2), SEQUENCE: [6, 5]})
    assert _once(rows, ("_place", "_order")).column("a").to_pylist() == [3]

"""What the engine reports, held against the truth: pairs, values, ids, order and the Arrow form of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.oracle import compare, key_of
from weever_stream.detect.detector import Detector
from weever_stream.detect.violations import OUTPUT_SCHEMA, Deltas, Violation, Violations

__all__ = ["assert_holds", "assert_net", "consistent", "triples"]

ROW_NUMBER = ("_row",)


def triples(found: Violations, key: Sequence[str]) -> set[tuple[str, Any, Any]]:
    """(rule, left key, right key) of each violation; none may stand twice."""
    listed = [_triple(violation, key or ROW_NUMBER) for violation in found]
    assert len(set(listed)) == len(listed), "a violation is reported once"
    return set(listed)


def _triple(violation: Violation, key: Sequence[str]) -> tuple[str, Any, Any]:
    right = None if violation.right is None else key_of(violation.right, key)
    return violation.rule, key_of(violation.left, key), right


def consistent(found: Violations) -> list[Violation]:
    """Reads violations both ways: one by one and as a table. Both say the same, and no id stands twice."""
    listed = list(found)
    table = found.to_arrow()
    assert table.schema == OUTPUT_SCHEMA
    assert len(found) == len(listed) == table.num_rows
    columns = ["rule", "change", "violation_id", "left_key", "right_key", "severity"]
    assert [(v.rule, v.change, v.id, v.left_key, v.right_key, v.severity) for v in listed] == list(
        zip(*(table.column(name).to_pylist() for name in columns), strict=True)
    )
    assert len({v.id for v in listed}) == len(listed), "an id names one violation"
    return listed


def assert_net(
    deltas: Deltas,
    before: set[tuple[str, Any, Any]],
    after: set[tuple[str, Any, Any]],
    key: Sequence[str],
    old: Mapping[Any, Mapping[str, Any]],
    new: Mapping[Any, Mapping[str, Any]],
) -> None:
    """The deltas are the exact difference, removals first, and show old values of what went and new of what came."""
    listed = consistent(deltas)
    assert [v.change for v in listed] == ["removed"] * len(deltas.removed) + ["added"] * len(deltas.added)
    assert triples(deltas.removed, key) == before - after
    assert triples(deltas.added, key) == after - before
    for violation in listed:
        table = new if violation.change == "added" else old
        _, left, right = _triple(violation, key or ROW_NUMBER)
        _assert_values(violation.left, table[left])
        if violation.right is not None:
            _assert_values(violation.right, table[right])


def _assert_values(shown: Mapping[str, Any], row: Mapping[str, Any]) -> None:
    for name, value in shown.items():
        if name in row:
            same = value is row[name] or (None not in (value, row[name]) and compare(value, row[name]) == 0)
            assert same, f"{name} is shown as {value!r} and is {row[name]!r}"


def assert_holds(
    detector: Detector,
    truth: set[tuple[str, Any, Any]],
    rows: int,
    key: Sequence[str],
    check: bool = True,
    listed: set[tuple[str, Any, Any]] | None = None,
) -> None:
    """The detector knows the living violations, by count and by name, and its structures are sound.

    `listed`: those that it lists, where a cap lets it count the others.
    """
    assert len(detector) == rows
    for rule in detector.rules:
        mine, shown = (
            {violation for violation in some if violation[0] == rule.name}
            for some in (truth, truth if listed is None else listed)
        )
        assert detector.count(rule.name) == len(mine)
        assert triples(detector.violations(rule), key) == shown
    if check:
        detector._check()

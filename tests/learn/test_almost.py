"""Rules that almost hold, beside a learner. Catches: an error told that is another's, a rule that leaves without a pair,
state that is lost or differs after a dump, changes that come late and count all the same.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from weever_stream.errors import StateError
from weever_stream.learn.almost import AlmostRules
from weever_stream.learn.together import Together

N = 60
SETTINGS = {"cross": False, "max_predicates": 2}


def rows(*, wrong: int) -> pa.Table:
    """Zips with their cities, but for some."""
    cities = [f"c{key % 6}" if key >= wrong else "elsewhere" for key in range(N)]
    return pa.table(
        {
            "id": pa.array(range(N), pa.int64()),
            "zip": pa.array([key % 6 for key in range(N)], pa.int64()),
            "city": pa.array(cities, pa.large_string()),
            "_commit_version": pa.array([5] * N, pa.int64()),
        }
    )


def changes(cities: dict[int, str], version: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(cities, pa.int64()),
            "zip": pa.array([key % 6 for key in cities], pa.int64()),
            "city": pa.array(cities.values(), pa.large_string()),
            "_change_type": ["upsert"] * len(cities),
            "_commit_version": pa.array([version] * len(cities), pa.int64()),
        }
    )


def made() -> list[AlmostRules]:
    return [AlmostRules(["id"], 0.01, **SETTINGS)]


def test_errors_are_told_at_first_and_when_a_rule_leaves_and_returns(tmp_path: Path) -> None:
    held, told = Together.build(rows(wrong=1), "_commit_version", made(), key=["id"], **SETTINGS)
    (event,) = [one for one in told if one.words == "zip determines city"]
    assert event.error == pytest.approx(2 * 9 / (N * (N - 1)))
    assert event.left_key is None
    assert "zip determines city" not in {rule.description for rule in held.learner.rules}
    path = tmp_path / "dump"
    held.dump(path)
    for one in (held, Together.load(path, made)):
        assert one.apply(changes(dict.fromkeys(range(20), "late"), 4)) == (one.learner.apply([]), []), "stale"
        _, told = one.apply(changes({7: "x", 8: "x", 9: "x"}, 6))
        (left,) = [event for event in told if event.words == "zip determines city"]
        assert (left.event, left.rule) == ("error", event.rule)
        assert left.error is not None
        assert left.error > 0.012
        assert {left.left_key, left.right_key} & {"7", "8", "9"}
        assert left.left_values is not None
        _, told = one.apply(changes({key: f"c{key % 6}" for key in (0, 7, 8, 9)}, 7))
        (back,) = [event for event in told if event.words == "zip determines city"]
        assert (back.error, back.left_key) == (0.0, None)
        assert "zip determines city" in {rule.description for rule in one.learner.rules}


def test_a_dump_with_other_parts_or_torn_is_refused(tmp_path: Path) -> None:
    held, _ = Together.build(rows(wrong=0), "_commit_version", key=["id"], **SETTINGS)
    path = tmp_path / "dump"
    held.dump(path)
    assert [part.name for part in tmp_path.iterdir()] == ["dump"]
    with pytest.raises(StateError, match="other parts"):
        Together.load(path, made)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(StateError, match="torn"):
        Together.load(path)
    with pytest.raises(StateError, match="cannot be read"):
        Together.load(tmp_path / "nowhere")

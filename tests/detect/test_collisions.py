"""All answers stay exact when hashes collide all the time: they are cut to four bits here.

Catches: two texts, composite keys or row keys taken for equal because their hashes are; a stored row found under
another's key and replaced or deleted in its stead. The one exception is by design: `!=` between texts compares hashes,
so a collision can hide a pair (one in 2^64 with whole hashes), though never invent one.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.detect.agreement import triples
from tests.detect.drawn import small_runs
from tests.oracle import key_of, violations, written
from weever_stream.detect.detector import Detector
from weever_stream.index import hashing
from weever_stream.rules import parse_rule

SCHEMA = pa.schema(
    [
        ("name", pa.string()), ("id", pa.int64()), ("w", pa.decimal128(38, 4)), ("a", pa.int64()), ("b", pa.int64()),
        ("s", pa.string()), ("r", pa.large_string()),
    ]
)  # fmt: skip
EXACT = {
    "number": "t.a = s.a",
    "numbers": "t.a = s.a and t.b = s.b",
    "dependency": "t.a = s.a and t.b != s.b",
    "crossed": "t.a = s.b and t.b = s.a",
    "text": "t.s = s.s and t.b != s.b",
    "texts": "t.s = s.s and t.r = s.r",
    "text_crossed": "t.s = s.r and t.r = s.s",
    "text_and_number": "t.s = s.s and t.a = s.a and t.b < s.b",
    "wide": "t.w = s.w and t.a < s.a",
    "order_of_texts": "t.s < s.s and t.a = s.a",
    "text_filter": "t.s = 'text 1' and s.s != 'text 1' and t.a = s.a",
}
HIDING = {"other_text": "t.a = s.a and t.s != s.s", "other_wide": "t.a = s.a and t.w != s.w"}


@pytest.fixture(autouse=True)
def four_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashing, "HASH_BITS", 4)


@pytest.fixture(params=["few", "many"])
def in_runs(request: pytest.FixtureRequest) -> Iterator[None]:
    """All rows in the tail, or most in runs."""
    if request.param == "few":
        yield
        return
    with small_runs(batch=5, tail=20):
        yield


def rows_of(random: np.random.Generator, n: int) -> list[dict[str, Any]]:
    made = random.integers(0, 90, (n, 7)).tolist()
    return [
        {
            "name": f"row {k}",
            "id": i,
            "w": Decimal(w) * 10**20,
            "a": a % 20,
            "b": b % 6,
            "s": f"text {s % 20}",
            "r": f"text {r % 6}",
        }
        for k, i, w, a, b, s, r in made
    ]


def test_hashes_do_collide_here():
    assert len(set(hashing.hash_strings(pa.array([f"text {n}" for n in range(40)])).tolist())) <= 16
    assert len(set(hashing.mix_keys(np.arange(40).reshape(-1, 1)).tolist())) <= 16


@pytest.mark.parametrize("key", [("name",), ("id",), ("name", "id"), ("w",)])
@pytest.mark.usefixtures("in_runs")
def test_answers_stay_exact_under_collisions(key: tuple[str, ...], tmp_path: Path):
    random = np.random.default_rng(11)
    rules = [parse_rule(text, name=name) for name, text in EXACT.items()]
    hiding = [parse_rule(text, name=name) for name, text in HIDING.items()]
    truthful = [written(text, name) for name, text in (EXACT | HIDING).items()]
    detector, model, seen = Detector([*rules, *hiding], key=key, schema=SCHEMA), {}, set()
    for step in range(6):
        if step % 3 == 2:
            gone = random.choice(len(model), len(model) // 3, replace=False).tolist()
            keys = [list(model)[at] for at in gone]
            strangers = ["nobody", 77, Decimal(77)]
            unknown = [("nobody", 77)] if len(key) > 1 else [strangers[["name", "id", "w"].index(key[0])]]
            detector.delete([*keys, *unknown])
            for dropped in keys:
                del model[dropped]
        else:
            mine = rows_of(random, 25)
            detector.upsert(mine)
            model |= {key_of(row, key): row for row in mine}
        if step == 4:
            detector.dump(tmp_path / "state")
            detector = Detector.load(tmp_path / "state", [*rules, *hiding], key=key)
        truth = violations(truthful, model.values(), key)
        found = triples(detector.violations(), key)
        assert {v for v in found if v[0] in EXACT} == {v for v in truth if v[0] in EXACT}
        assert {v for v in found if v[0] in HIDING} <= {v for v in truth if v[0] in HIDING}
        assert len(detector) == len(model)
        seen |= {rule for rule, *_ in found}
    detector._check()
    assert set(EXACT) - seen <= ({"wide"} if key == ("w",) else set()), "every rule was put to the test"


def test_a_strict_insert_tells_a_held_key_from_one_that_collides():
    detector = Detector(["t.a = s.a"], key="name", strict=True)
    for number in range(40):
        detector.insert({"name": f"row {number}", "a": number})
    assert len(detector) == 40
    assert detector.count("rule_1") == 0

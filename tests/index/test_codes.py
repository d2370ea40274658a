"""Codes of columns: exact ones compare as the values do, the others never lose a candidate.

Catches: an encoder that breaks order or equality at the edges of a type, forgets the offset of a slice or the chunks of
a column, reads what lies under a null as a value, or gives a dictionary's indices instead of its values.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.index.typed import TYPED, Typed
from tests.oracle import compare
from weever_stream.index.codes import Coding, coding, encode
from weever_stream.rules import ColumnType, common_type, type_of_arrow


def columns(typed: Typed) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.none() | typed.values, max_size=12)


def codes_of(array: pa.Array | pa.ChunkedArray, how: Coding) -> list[int | None]:
    """Codes as Python numbers, None for null."""
    codes, valid = encode(array, how)
    assert codes.dtype == np.int64
    assert len(codes) == len(array)
    assert valid is None or len(valid) == len(array)
    return [int(code) if valid is None or valid[at] else None for at, code in enumerate(codes)]


def assert_keeps(typed: Typed, values: list[Any], how: Coding) -> None:
    codes = codes_of(typed.array(values), how)
    assert [code is None for code in codes] == [value is None for value in values]
    known = [(typed.truth(value), code) for value, code in zip(values, codes, strict=True) if code is not None]
    for (one, its_code), (other, other_code) in product(known, known):
        outcome, by_code = compare(one, other), (its_code > other_code) - (its_code < other_code)
        if how.exact:
            assert by_code == outcome
        elif how.form == "prefix":
            assert by_code in (0, outcome)
        else:
            assert outcome != 0 or by_code == 0


@pytest.mark.parametrize("name", TYPED)
@pytest.mark.parametrize("ordered", [True, False])
def test_codes_keep_the_order_and_equality_of_a_type(name: str, ordered: bool):
    typed = TYPED[name]
    domain = type_of_arrow(typed.arrow)
    assert isinstance(domain, ColumnType)

    @settings(max_examples=5)
    @given(columns(typed))
    def keeps(values: list[Any]) -> None:
        assert_keeps(typed, values, coding(domain, ordered=ordered))

    keeps()


@pytest.mark.parametrize("name", TYPED)
def test_slices_and_chunks_have_the_codes_of_the_whole(name: str):
    typed = TYPED[name]
    domain = type_of_arrow(typed.arrow)
    assert isinstance(domain, ColumnType)

    @settings(max_examples=5)
    @given(columns(typed), st.integers(0, 12), st.integers(0, 12), st.booleans())
    def agrees(values: list[Any], start: int, length: int, ordered: bool) -> None:
        how, whole = coding(domain, ordered=ordered), typed.array(values)
        codes = codes_of(whole, how)
        assert codes_of(whole.slice(start, length), how) == codes[start : start + length]
        chunks = pa.chunked_array([whole.slice(0, start), whole.slice(start)], whole.type)
        assert codes_of(chunks, how) == codes
        assert codes_of(pa.chunked_array([], whole.type), how) == []

    agrees()


def test_a_column_of_nulls_has_no_codes():
    for typed in TYPED.values():
        domain = type_of_arrow(typed.arrow)
        assert isinstance(domain, ColumnType)
        for ordered in (True, False):
            how = coding(domain, ordered=ordered)
            assert codes_of(typed.array([None] * 3), how) == [None] * 3
            assert codes_of(pa.nulls(3), how) == [None] * 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("decimal(5,2)", "decimal(18,0)"),
        ("decimal(1,0)", "decimal(38,38)"),
        ("int64", "decimal(18,18)"),
        ("uint64", "int64"),
        ("float32", "int64"),
        ("decimal(18,18)", "float64"),
        ("date32", "timestamp(us,None)"),
        ("time(s)", "time(ns)"),
        ("timestamp(s,UTC)", "timestamp(ns,UTC)"),
    ],
)
def test_codes_of_two_types_meet_in_their_common_type(one: str, other: str):
    a, b = TYPED[one], TYPED[other]
    first, second = type_of_arrow(a.arrow), type_of_arrow(b.arrow)
    assert isinstance(first, ColumnType)
    assert isinstance(second, ColumnType)
    domain = common_type(first, second)
    assert domain is not None

    @settings(max_examples=15)
    @given(a.values, b.values, st.booleans())
    def agree(x: Any, y: Any, ordered: bool) -> None:
        how = coding(domain, ordered=ordered)
        (code,), (its_code,) = codes_of(a.array([x]), how), codes_of(b.array([y]), how)
        outcome = compare(a.truth(x), b.truth(y))
        if how.form != "hash":
            assert (code > its_code) - (code < its_code) in ((outcome,) if how.exact else (0, outcome))
        else:
            assert outcome != 0 or code == its_code

    agree()

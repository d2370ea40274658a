"""Columns in declared types. Catches: a misfit that is told with the wrong row, or not as what it is."""

from __future__ import annotations

import pyarrow as pa
import pytest

from weever_stream.errors import DataError
from weever_stream.index.casting import typed
from weever_stream.rules.types import type_of_name


def test_a_type_that_no_value_can_become_is_told_apart_from_a_value_that_does_not_fit() -> None:
    lists = pa.table({"a": pa.array([[1], [2]])})
    with pytest.raises(DataError, match=r"rows: column a is of type list<.*> and cannot become a bigint"):
        typed(lists, {"a": type_of_name("bigint")}, "rows")
    texts = pa.table({"a": pa.chunked_array([["1", None], ["3", "x", "y"]])})
    with pytest.raises(DataError, match="rows: column a: the value in row 4 is not a bigint"):
        typed(texts, {"a": type_of_name("bigint")}, "rows")
    fits = typed(texts.slice(0, 3), {"a": type_of_name("bigint")}, "rows")
    assert fits["a"].to_pylist() == [1, None, 3]

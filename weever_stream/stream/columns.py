"""The columns that a job reads, and the types in which it stores them. No Spark in here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa

from weever_stream.errors import DataError, StateError, did_you_mean
from weever_stream.rules.reserved import refuse_reserved
from weever_stream.rules.types import ColumnType

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weever_stream.rules.model import Rule
    from weever_stream.rules.types import Schema

__all__ = ["key_types", "needed", "readers_of", "refuse_types", "stored_schema", "stored_type"]


def needed(rules: Iterable[Rule], key: Sequence[str]) -> list[str]:
    """The columns that rules and key read: the key first, then by name."""
    read = {name for rule in rules for name in rule.columns}
    return [*key, *sorted(read - set(key))]


def key_types(key: Sequence[str], found: Schema) -> tuple[tuple[str, ColumnType], ...]:
    """The key's columns with their types. Refuses a key that cannot tell rows apart."""
    if not key:
        raise DataError("there is no key to tell rows apart by", hint="name the key's columns: `key:` in the rule file")
    refuse_reserved(key)
    types: list[tuple[str, ColumnType]] = []
    for name in key:
        kind = found.get(name)
        if not isinstance(kind, ColumnType):
            problem = f"is of type {kind}, which cannot be compared" if kind else "is not a column"
            raise DataError(f"the key {name} {problem}", hint=did_you_mean(name, found))
        types.append((name, kind))
    return tuple(types)


def stored_schema(kinds: Iterable[tuple[str, str]]) -> pa.Schema:
    """Columns, given with Spark's names of their types, in the types in which they are stored."""
    return pa.schema([(name, stored_type(kind)) for name, kind in kinds])


_STORED = {
    # All whole numbers alike: a column that is widened later is still the one that is stored.
    "boolean": pa.bool_(), "tinyint": pa.int64(), "smallint": pa.int64(), "int": pa.int64(), "bigint": pa.int64(),
    "float": pa.float32(), "double": pa.float64(), "date": pa.date32(), "string": pa.large_string(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip


def stored_type(kind: str) -> pa.DataType:
    """The Arrow type in which a column of a Spark type is stored: instants in UTC whatever the session's zone."""
    if decimal := re.fullmatch(r"decimal\((\d+),(\d+)\)", kind):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if re.match(r"(var)?char\(", kind):
        return pa.large_string()  # a shard may hold more than 2 GB of texts
    return pa.duration("us") if kind.startswith("interval ") else _STORED[kind]


def readers_of(rules: Iterable[Rule], name: str) -> str:
    """The rules that read a column, by name; the key is read by all."""
    return ", ".join(rule.name for rule in rules if name in rule.columns) or "the key"


def refuse_types(found: pa.Schema, stored: pa.Schema, rules: Sequence[Rule], checkpoint: str) -> None:
    """Raises `StateError` for the first column that a source has in another type than it is stored in."""
    for field in found:
        before = stored.field(field.name).type if field.name in stored.names else field.type
        if field.type != before:
            raise StateError(
                f"the column {field.name} is stored as {before} under {checkpoint}, now it is {field.type};"
                f" it is read by {readers_of(rules, field.name)}",
                hint="change it back, declare its old type under `columns:`, or name an empty checkpoint and start "
                "with --take-over, which finds everything again",
            )

"""JSON documents: parsed once into a variant, from which members are read exactly or not at all.

`from_json` is no reader for a watch over data (seen on Spark 4.2): it ignores what follows the document, takes the last
of two equal names, reads `'a'` in single quotes, turns numbers into doubles on their way to strings (`1.10` is 1.1, 30
digits become 17) and half of a surrogate pair into `?`. A variant keeps integers and decimals of up to 38 digits,
knows a string from a number, and refuses equal names, loose syntax and broken pairs. What it lacks is made good here:
a document is wrapped in an array so that trailing text breaks it, and a number in scientific notation, which a variant
keeps as a double, is read again from the text if a decimal is wanted. Costs one parse a record.

A member that is absent or null is null. One that is there must be of its declared type: numbers may be written as JSON
numbers or strings; a string may also be a whole number or true or false, which are their own text; objects and arrays
are never values. Epoch numbers are no timestamps: nothing tells their unit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from weever_stream.errors import DataError
from weever_stream.feeds.conversion import from_text, let
from weever_stream.feeds.readings import Reading

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame

    from weever_stream.rules.types import ColumnType

__all__ = ["NOT_ONE_DOCUMENT", "OBJECT", "Document", "Member", "parsed", "text_of"]

OBJECT = r"^\s*\{"
"""How the text of an object begins, if it is a document at all."""
NOT_ONE_DOCUMENT = "is not one JSON document with names given once"
_EXACT_IN_DOUBLES = 2**53
_WHOLE = r"^(BIGINT|BOOLEAN|DECIMAL\([0-9]+,0\))$"


def text_of(binary: Column) -> Column:
    """Bytes as text; null where they are not UTF-8."""
    text = binary.cast("string")
    return F.when(F.is_valid_utf8(text), text)


def parsed(text: Column) -> Column:
    """A text as a variant: an array of the document and 0, so that what follows the document shows. Make it a column
    of its own: Catalyst parses once for each mention.
    """
    return F.try_parse_json(F.concat(F.lit("["), text, F.lit(",0]")))


@dataclass(frozen=True)
class Member:
    """A member of an object: a variant, SQL null where it is absent and a null variant where it is null."""

    name: str
    value: Column
    json_type: Column
    """As `schema_of_variant` spells it."""
    source: Column
    """The text that the document was parsed from."""

    @property
    def given(self) -> Column:
        """Whether there is a value: neither absent nor null."""
        return F.coalesce(self.json_type != "VOID", F.lit(False))

    @property
    def there(self) -> Column:
        """Whether the member is there, be it null."""
        return self.json_type.isNotNull()

    def read(self, wanted: ColumnType) -> Reading:
        """The member in its declared type."""
        return Reading(self.name, self.scalar(wanted), wanted, self.given)

    def scalar(self, wanted: ColumnType) -> Column:
        """The value in the wanted type, null where it does not fit."""
        json_type, text = self.json_type, self.value.cast("string")
        double = F.try_variant_get(self.value, "$", "double")
        if wanted.kind == "string":
            return F.when((json_type == "STRING") | json_type.rlike(_WHOLE), text)
        if wanted.kind == "integer":
            exact = (F.abs(double) <= _EXACT_IN_DOUBLES) & (double == F.floor(double))
            return (
                F.when(json_type == "BIGINT", F.try_variant_get(self.value, "$", "bigint"))
                .when(json_type == "DOUBLE", F.when(exact, double.try_cast("bigint")))
                .otherwise(from_text(text, wanted))
            )
        if wanted.kind in ("decimal", "uint64"):
            rare = let(self._as_written(), lambda written: from_text(written, wanted))
            return F.when(json_type == "DOUBLE", rare).otherwise(from_text(text, wanted))
        if wanted.kind == "float":
            number = json_type.isin("BIGINT", "DOUBLE") | json_type.startswith("DECIMAL")
            return F.when(number, F.when(F.abs(double) != float("inf"), double)).otherwise(from_text(text, wanted))
        return from_text(text, wanted)

    def _as_written(self) -> Column:
        """The digits of a number that the variant holds as a double: those under its name whose value is that."""
        pattern = F.lit(rf'"{re.escape(self.name)}"\s*:\s*(-?[0-9][0-9.eE+-]*)')
        found = F.regexp_extract_all(self.source, pattern, F.lit(1))
        double = F.try_variant_get(self.value, "$", "double")
        # Several where a record holds the old row and the new.
        alike = F.array_distinct(F.filter(found, lambda number: number.try_cast("double") == double))
        return let(alike, lambda numbers: F.when(F.size(numbers) == 1, F.get(numbers, F.lit(0))))


@dataclass(frozen=True)
class Document:
    """A document, or an object inside of one: a variant, the path to it, and the text it was parsed from."""

    variant: Column
    path: str
    source: Column

    @property
    def sound(self) -> Column:
        """Whether the text was exactly one document; for variants that `parsed` made."""
        zero = F.try_variant_get(self.variant, "$[1]", "int") == 0
        return F.coalesce(zero & F.try_variant_get(self.variant, "$[2]", "variant").isNull(), F.lit(False))

    @property
    def itself(self) -> Column:
        """The object as a variant."""
        return F.try_variant_get(self.variant, self.path, "variant")

    def inner(self, name: str) -> Document:
        """The object that is a member."""
        return Document(self.variant, self.path + _step(name), self.source)

    def member(self, name: str) -> Member:
        """A member, for rare cases: every use of it reads it again."""
        value = self.inner(name).itself
        return Member(name, value, F.schema_of_variant(value), self.source)

    def opened(self, frame: DataFrame, names: Iterable[str], prefix: str) -> tuple[DataFrame, dict[str, Member]]:
        """Members as columns of their own, so that each is looked up once."""
        at = {name: f"{prefix}{i}" for i, name in enumerate(names)}
        taken = frame.withColumns({place: self.inner(name).itself for name, place in at.items()})
        typed = taken.withColumns({f"{place}_type": F.schema_of_variant(place) for place in at.values()})
        members = {name: Member(name, F.col(place), F.col(f"{place}_type"), self.source) for name, place in at.items()}
        return typed, members


def _step(name: str) -> str:
    quote = "'" if "'" not in name else '"'
    if quote in name:
        raise DataError(f"column {name} has both kinds of quotes in its name", hint="Spark cannot read it from JSON")
    return f"[{quote}{name}{quote}]"

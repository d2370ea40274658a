"""What is told of learned rules: from when on a rule holds, and the pair of rows that is the reason if it does no more.

The same everywhere: in Delta tables, in Kafka, on the terminal. Keys and values are written as those of violations are,
so that both can be joined. Cost: a few microseconds an event.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from weever_stream.detect.identity import json_value, plain
from weever_stream.detect.texts import written

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weever_stream.rules.model import Rule

__all__ = ["EVENT_SCHEMA", "Kind", "RuleEvent", "Told", "as_table", "key_text", "values_text"]

Kind = Literal["added", "dropped", "error", "drift"]
EVENT_SCHEMA = pa.schema(
    [
        ("event", pa.string()),
        ("rule", pa.string()),
        ("rule_fingerprint", pa.string()),
        ("deny", pa.string()),
        ("words", pa.string()),
        ("error", pa.float64()),
        ("left_key", pa.string()),
        ("right_key", pa.string()),
        ("left_values", pa.string()),
        ("right_values", pa.string()),
    ]
)


@dataclass(frozen=True)
class RuleEvent:
    """One thing that became of a rule in a batch."""

    event: Kind
    rule: str
    """Its name."""
    rule_fingerprint: str
    deny: str
    words: str
    error: float | None = None
    left_key: str | None = None
    right_key: str | None = None
    left_values: str | None = None
    right_values: str | None = None

    @classmethod
    def of(cls, event: Kind, rule: Rule, words: str, error: float | None = None, pair: Told | None = None) -> RuleEvent:
        """An event of a rule, with the pair of rows that is its reason."""
        from weever_stream.rules.writing import write_rule

        told = (None, None, None, None) if pair is None else pair
        return cls(event, rule.name, rule.fingerprint, write_rule(rule), words, error, *told)

    @property
    def pair(self) -> Told | None:
        """The pair of rows that is the reason."""
        if self.left_key is None:
            return None
        return (self.left_key, self.right_key, self.left_values, self.right_values)


Told = tuple[str | None, str | None, str | None, str | None]
"""A pair of rows in texts: both keys, then what the rule reads of both rows."""


def key_text(key: Sequence[Any] | None) -> str | None:
    """A key as violations write it: its plain text, or of several columns the JSON array of them."""
    if key is None:
        return None
    return plain(key[0]) if len(key) == 1 else written([json_value(value) for value in key])


def values_text(values: Mapping[str, Any] | None, columns: Sequence[str]) -> str | None:
    """What a rule reads of a row, as violations write it."""
    if values is None:
        return None
    return written({name: json_value(values[name]) for name in columns if name in values})


def as_table(events: Iterable[RuleEvent]) -> pa.Table:
    """Events with `EVENT_SCHEMA`."""
    return pa.Table.from_pylist([vars(event) for event in events], EVENT_SCHEMA)

"""Rules that almost hold, beside a learner: found in the first rows, and told when they leave their limit or return.

The best rules that at most a share `error` of all pairs violates are chosen once, from the rows that the learner is
built from; their errors are then kept exact (see `errors`). The first batch tells the error of each. After that a rule
is told when its error passes the limit by a fifth, with a pair that broke it, and when it is below by a fifth again.
Cost: a second copy of the rows in memory, and what `ErrorWatch` costs for a batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weever_stream.discover.run import discover
from weever_stream.errors import StateError
from weever_stream.learn.errors import ErrorWatch
from weever_stream.learn.events import RuleEvent, values_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from weever_stream.learn.errors import ErrorChange

__all__ = ["AlmostRules"]

_VERSION = "_commit_version"
_SECONDS = 60.0
"""For the discovery."""


class AlmostRules:
    """A companion of a learner. `options` are further ones of `discover`."""

    name = "errors"

    def __init__(
        self, key: Sequence[str], error: float, *, columns: Sequence[str] | None = None, **options: Any
    ) -> None:
        self._key, self._error, self._columns, self._options = tuple(key), error, columns, options
        self._watch: ErrorWatch | None = None

    def build(self, rows: pa.Table) -> list[RuleEvent]:
        """Finds the rules, and tells their errors."""
        versions, table = rows.column(_VERSION).to_numpy(), rows.drop_columns([_VERSION])
        looked_at = self._columns or [name for name in table.column_names if name not in self._key]
        found = discover(table, columns=looked_at, error=self._error, seconds=_SECONDS, **self._options)
        watch = ErrorWatch(found, key=self._key, schema=table.schema, error=self._error)
        watch.upsert(table, sequence=versions)  # with their sequences, so that what comes late is known to be late
        self._watch = watch
        errors = watch.errors
        return [
            RuleEvent.of("error", rule, rule.description or rule.name, errors[rule.name])
            for rule in watch.rules
            if errors[rule.name] > 0
        ]

    def apply(self, changes: pa.Table) -> list[RuleEvent]:
        """Tells of rules that have left their limit, or are back."""
        if not changes.num_rows:
            return []
        told = self._watching.apply(changes)
        return [self._event(change) for change in (*told.left, *told.returned)]

    def dump(self, path: Path) -> None:
        """Writes rows, rules and which of them hold."""
        self._watching.dump(path)

    def load(self, path: Path) -> None:
        """Takes them from a file."""
        self._watch = ErrorWatch.load(path)

    @property
    def _watching(self) -> ErrorWatch:
        if self._watch is None:
            raise StateError("errors are not watched yet", hint="build or load what watches them first")
        return self._watch

    def _event(self, change: ErrorChange) -> RuleEvent:
        rule = next(one for one in self._watching.rules if one.name == change.rule)
        example, pair = change.example, None
        if example is not None:
            left, right = (values_text(values, rule.columns) for values in (example.left, example.right))
            pair = (example.left_key, example.right_key, left, right)
        return RuleEvent.of("error", rule, change.words, change.error, pair)

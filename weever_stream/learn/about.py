"""What a learner was made for, noted beside it: table, key, columns with their types, and which rules it looks for.

Where one of these changes, what is held and what was told of it no longer fit: such a start is refused, with the old
value, and `weever learn --anew` begins again. A column that is new in the source is not learned until then.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from weever_stream.errors import StateError
from weever_stream.learn.proposals import Known

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["ABOUT", "ANEW", "About"]

ABOUT = "learn.json"
ANEW = "go back to it, or `weever learn --anew` forgets what was learned and begins again"
_FORMAT = 1


@dataclass(frozen=True)
class About:
    """The note."""

    table: str
    source: str
    """Its kind."""
    key: tuple[str, ...]
    settings: Mapping[str, Any]
    """`job.learning.Learn.space`."""
    columns: pa.Schema
    """Key and learned columns, in the types in which they are held."""

    def known(self, columns: Iterable[str]) -> Known:
        """Which rules would be found, where these columns are compared."""
        text = bool(self.settings.get("order_text", False))
        ordered = {name: text or _in_order(self.columns.field(name).type) for name in columns}
        return Known(ordered, int(self.settings["max_predicates"]))

    def to_json(self) -> dict[str, Any]:
        """As a note."""
        schema = base64.b64encode(self.columns.serialize().to_pybytes()).decode()
        return {"format": _FORMAT, **vars(self), "key": list(self.key), "columns": schema}

    @classmethod
    def of_json(cls, noted: Mapping[str, Any], where: str) -> About:
        """From a note. Refuses what a later release wrote, and what is damaged."""
        if noted.get("format") != _FORMAT:
            raise StateError(
                f"the learner in {where} was made by another release: its format is {noted.get('format')}, "
                f"this release knows {_FORMAT}",
                hint="run the release that made it, or `weever learn --anew`",
            )
        try:
            schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(noted["columns"])))
            return cls(str(noted["table"]), str(noted["source"]), tuple(noted["key"]), dict(noted["settings"]), schema)
        except (KeyError, TypeError, ValueError, pa.ArrowException):
            raise StateError(
                f"the note {ABOUT} in {where} is damaged", hint="restore it from a copy of the checkpoint"
            ) from None

    def refuse(self, now: About) -> None:
        """Raises where a learner that was made for this cannot go on with what a job asks for now."""
        if self.source != now.source:
            raise StateError(f"the learner was made for a {self.source} source, now it is {now.source}", hint=ANEW)
        if self.key != now.key:
            before, after = ", ".join(self.key), ", ".join(now.key)
            raise StateError(f"the learner was made for the key {before}, now it is {after}", hint=ANEW)
        for name in sorted(self.settings.keys() | now.settings.keys()):
            old, new = _told(self.settings.get(name)), _told(now.settings.get(name))
            if old != new:
                raise StateError(f"the learner was made with `{name}: {old}`, now it is `{new}`", hint=ANEW)
        for field in self.columns:
            there = now.columns.names
            if field.name not in there:
                raise StateError(f"the column {field.name} is learned from, and is gone from the source", hint=ANEW)
            if now.columns.field(field.name).type != field.type:
                raise StateError(
                    f"the column {field.name} is learned from as {field.type}, now it is "
                    f"{now.columns.field(field.name).type}",
                    hint=f"declare its old type under `columns:`, or {ANEW}",
                )


def _told(value: object) -> str:
    return "none said" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _in_order(kind: pa.DataType) -> bool:
    """Whether values of a type are put in order without being asked for."""
    texts = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return not texts and not pa.types.is_boolean(kind)

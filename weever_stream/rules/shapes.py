"""What is wrong with the shape of a rule file, in our words and at its place.

pydantic says which field is missing, unknown or of the wrong kind; here each finding is looked up in the YAML nodes, so
that the error points at the line and column, and is told as a person would tell it. Cost: linear in the findings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weever_stream.errors import RuleError, did_you_mean
from weever_stream.rules.filemodel import DependencyModel, FileModel, OrderModel, RuleAlertsModel, RuleModel, TableModel
from weever_stream.rules.model import SEVERITIES

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

    from weever_stream.rules.nodes import Node

__all__ = ["shape_errors"]

_MODELS: dict[str, type[BaseModel]] = {
    "rules": RuleModel,
    "fd": DependencyModel,
    "order": OrderModel,
    "table": TableModel,
    "alerts": RuleAlertsModel,
}
_WANTED = {"string_type": "text", "list_type": "a list", "dict_type": "a mapping", "model_type": "a mapping"}
_EITHER = {"fd": "text or a mapping", "order": "text or a mapping", "table": "a name or a mapping"} | dict.fromkeys(
    ("unique", "key", "determinants", "dependents", "of", "within"), "a column or a list of columns"
)
_WORDS = {"values": "none, keys, all, or a list of columns", "group_by": "rule, equality, or a list of columns"}


@dataclass
class _Spot:
    """Where a finding leads: the node, its key, the field that holds it, and the rule and model around it."""

    node: Node
    key: Node | None = None
    field: str = ""
    rule: str | None = None
    model: type[BaseModel] = FileModel


def shape_errors(error: ValidationError, root: Node) -> list[RuleError]:
    """pydantic's findings as errors with a place in the file."""
    return [
        _shape_error(finding["type"], finding["loc"], finding["msg"], root)
        for finding in error.errors(include_url=False, include_input=False)
    ]


def _shape_error(kind: str, path: tuple[str | int, ...], said: str, root: Node) -> RuleError:
    spot = _spot(path, root)
    last = path[-1] if path else ""
    if kind == "extra_forbidden":
        place = (spot.key or spot.node).place(spot.rule)
        return RuleError(f"there is no field `{last}` here", place=place, hint=_unknown_field_hint(str(last), spot))
    message, hint = _told(kind, last, said, spot)
    return RuleError(message, place=spot.node.place(spot.rule), hint=hint)


def _spot(path: tuple[str | int, ...], root: Node) -> _Spot:
    """Follows a path as far as the file goes: a field may be missing, and pydantic adds the names of alternatives."""
    spot = _Spot(root)
    for part in path:
        following = spot.node.child(part)
        if following is None:
            continue
        if isinstance(part, str) and isinstance(spot.node.value, dict):
            spot.key, spot.field = spot.node.value[part][0], part
            spot.model = _MODELS.get(part, spot.model)
        elif spot.field == "rules" and (name := following.child("name")):
            spot.rule = name.value if isinstance(name.value, str) else None
        spot.node = following
    return spot


def _unknown_field_hint(field: str, spot: _Spot) -> str:
    if spot.node.is_null:
        return "inside { } a comma ends a text: put the text in quotes"
    return did_you_mean(field, spot.model.model_fields) or "the fields are " + ", ".join(spot.model.model_fields)


def _told(kind: str, last: str | int, said: Any, spot: _Spot) -> tuple[str, str | None]:
    """Message and hint for a finding."""
    value, field = spot.node.value, f"`{spot.field}`"
    if kind == "missing":
        return f"`{last}` is missing", None
    if kind == "literal_error" and last == "severity":
        return f"{value!r} is not a severity", did_you_mean(str(value), SEVERITIES) or "one of " + ", ".join(SEVERITIES)
    if kind == "literal_error" and spot.field in _WORDS:
        return f"{field}: {value!r} is not known", _WORDS[spot.field]
    if kind == "string_pattern_mismatch" and spot.field == "after":
        return f"{field} must be a number of violations", "for example 5, or 5 violations"
    if kind == "literal_error":
        return f"version {value} of the format is not known", "this release reads version 1"
    if kind in _WANTED:
        item = f"item {last + 1} of {field}" if isinstance(last, int) else None
        wanted = _WANTED[kind] if item else _EITHER.get(spot.field, _WANTED[kind])
        quoted = kind == "string_type" and not isinstance(value, str)
        hint = "a text that begins with [ or { is put in quotes" if quoted else None
        return f"{item or field} must be {wanted}", hint
    if kind in ("string_too_short", "too_short"):
        return f"{field} is empty", None
    if kind in ("string_too_long", "too_long"):
        return f"{field} is too long", str(said)
    return str(said).removeprefix("Value error, "), None

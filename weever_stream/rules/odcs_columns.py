"""The properties of a contract's table: which column each one is, its place in the key, and its type where it is known.

A column is called by its `physicalName`, and by `name` where there is none. Its type is the `physicalType`, in Spark's
spelling, if rules can compare it and it is of the kind that `logicalType` says; else what `logicalType` alone says for
certain. `number` is no type: it may be a decimal or a float. Cost: linear in the properties.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from weever_stream.errors import RuleError, TypeMismatchError
from weever_stream.rules.nodes import Node
from weever_stream.rules.types import ColumnType, type_of_name

if TYPE_CHECKING:
    from weever_stream.rules.types import Kind

__all__ = ["Property", "column_types", "described", "properties_of"]

_LOGICAL: dict[str, frozenset[Kind]] = {
    "string": frozenset({"string"}),
    "integer": frozenset({"integer", "uint64"}),
    "number": frozenset({"decimal", "float", "integer", "uint64"}),
    "boolean": frozenset({"boolean"}),
    "date": frozenset({"date"}),
    "time": frozenset({"time"}),
    "timestamp": frozenset({"timestamp", "timestamp_ntz"}),
}
"""The kinds of type that a logical type may be."""
_CERTAIN = {"string": "string", "integer": "bigint", "boolean": "boolean", "date": "date", "time": "time"}


@dataclass
class Property:
    """One property of a table, or of a column that has parts."""

    name: str
    node: Node
    column: Node
    """The node whose text is the column's name."""
    position: tuple[int, int] | None = None
    """Its place in the key: as the contract numbers it, and as it comes."""
    path: tuple[str, ...] = ()
    """The columns around it: none for a column."""
    inner: list[Property] = field(default_factory=list)

    def rank(self) -> tuple[int, int]:
        """For sorting the key."""
        return self.position or (0, 0)


def properties_of(table: Node, path: tuple[str, ...] = ()) -> list[Property]:
    """The properties of a table, with those inside them."""
    found = []
    for number, node in enumerate(table.children("properties")):
        name = node.child("name")
        if name is None or not isinstance(name.value, str) or not name.value:
            raise RuleError("a property has a `name`", place=node.place())
        physical = node.child("physicalName")
        column = physical if physical is not None and isinstance(physical.value, str) and physical.value else name
        one = Property(name.value, node, name if column.is_null else column, path=path)
        if not path and _is_true(node.child("primaryKey")):
            one.position = (_position(node.child("primaryKeyPosition")), number)
        inner = (*path, name.value)
        one.inner = properties_of(node, inner)
        if (items := node.child("items")) is not None:
            one.inner += properties_of(items, inner)
        found.append(one)
    return found


def column_types(properties: list[Property]) -> list[tuple[Node, Node]]:
    """Each column whose type is known: its name, and the type as a rule file spells it, each at its place."""
    found = []
    for one in properties:
        if (typed := _type_of(one.node)) is not None:
            type_, at = typed
            found.append((one.column, Node(str(type_), at.document, at.begin, at.end)))
    return found


def _type_of(node: Node) -> tuple[ColumnType, Node] | None:
    logical, physical = node.child("logicalType"), node.child("physicalType")
    allowed = _LOGICAL.get(str(logical.value)) if logical is not None else None
    if logical is not None and allowed is None:
        return None
    options = node.child("logicalTypeOptions")
    zone = options.child("timezone") if options is not None else None
    if logical is not None and logical.value == "timestamp" and zone is not None:
        return ColumnType("timestamp" if _is_true(zone) else "timestamp_ntz"), logical
    if physical is not None and isinstance(physical.value, str) and not physical.is_null:
        try:
            spelled = type_of_name(physical.value)
        except TypeMismatchError:
            pass
        else:
            if allowed is None or spelled.kind in allowed:
                return spelled, physical
    if logical is None:
        return None
    width = options.child("format") if options is not None else None
    if logical.value == "number" and width is not None and width.value in ("f32", "f64"):
        return ColumnType("float"), logical
    certain = _CERTAIN.get(str(logical.value))
    return (type_of_name(certain), logical) if certain else None


def described(type_: ColumnType) -> dict[str, Any]:
    """A type as a property tells it, so that reading gives the same type."""
    if type_.kind in ("timestamp", "timestamp_ntz"):
        zone = {"timezone": type_.kind == "timestamp"}
        return {"logicalType": "timestamp", "physicalType": str(type_), "logicalTypeOptions": zone}
    logical = next((name for name, kinds in _LOGICAL.items() if type_.kind in kinds), None)
    return {"logicalType": logical, "physicalType": str(type_)} if logical else {}


def _is_true(node: Node | None) -> bool:
    return node is not None and node.typed() is True


def _position(node: Node | None) -> int:
    """The number of a part of the key; parts without one come last."""
    number = node.typed() if node is not None else None
    return number if isinstance(number, int) and number > 0 else 1 << 31

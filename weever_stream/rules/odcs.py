"""Rules out of a data contract: a file of the Open Data Contract Standard, version 3, read as a rule file.

A contract's nodes are rearranged into those of a rule file, each at its own place, and the reader of rule files does
the rest: an error points at the line of the contract. What becomes a rule: checks with `engine: weever`, the metric
`duplicateValues` that must be 0, and `unique: true`. What becomes the key: `primaryKey`. Everything else that a
contract asks of its data is skipped, and every skipped check is told with its place and reason. Cost: linear in the
file.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from pydantic import ValidationError

from weever_stream.errors import RuleError, collecting, did_you_mean
from weever_stream.rules.filemodel import KINDS, RuleModel
from weever_stream.rules.items import rules_of_item
from weever_stream.rules.model import SEVERITIES
from weever_stream.rules.nodes import Node
from weever_stream.rules.odcs_columns import Property, column_types, properties_of

if TYPE_CHECKING:
    from weever_stream.errors import Place

__all__ = ["ENGINE", "METADATA", "Contract", "Skipped", "is_contract", "is_ours", "read_contract", "table_node"]

ENGINE = "weever"
METADATA = ("dimension", "businessImpact", "method", "unit", "tags", "authoritativeDefinitions")
"""Fields of a check that a rule keeps under `metadata`, by their own names."""
_METRICS = ("duplicateValues", "duplicateCount")
"""The metric, and what versions 3.0.x called it."""
_OPERATORS = (
    "mustBe", "mustNotBe", "mustBeGreaterThan", "mustBeGreaterOrEqualTo", "mustBeLessThan", "mustBeLessOrEqualTo",
    "mustBeBetween", "mustNotBeBetween",
)  # fmt: skip
_NONE_AT_ALL = {("mustBe", 0.0), ("mustBeLessOrEqualTo", 0.0), ("mustBeLessThan", 1.0)}
_SEVERITIES = {name: name for name in SEVERITIES} | {
    "information": "info", "low": "info", "warn": "warning", "minor": "warning", "medium": "warning",
    "major": "error", "high": "error", "blocker": "critical", "fatal": "critical",
}  # fmt: skip
_KIND = re.compile(rf"\s*({'|'.join(KINDS)})\s*:(?=\s)")


@dataclass(frozen=True)
class Skipped:
    """A check of a contract that becomes no rule."""

    check: str
    reason: str
    place: Place

    def __str__(self) -> str:
        return f"{self.place}: {self.check} is skipped: {self.reason}"


@dataclass
class Contract:
    """A contract's table as the nodes of a rule file, and what was left out."""

    root: Node
    skipped: list[Skipped] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    errors: list[RuleError] = field(default_factory=list)
    """What is wrong with its checks; the others are read all the same."""


def is_contract(root: Node) -> bool:
    """Whether a YAML file is a data contract: it says so itself."""
    kind = root.child("kind")
    return root.child("apiVersion") is not None and kind is not None and kind.value == "DataContract"


def is_ours(check: Node) -> bool:
    """Whether a quality check is one for us."""
    engine = _word(check, "engine")
    return engine is not None and engine.casefold() == ENGINE


def read_contract(root: Node, table: str | None = None) -> Contract:
    """The rule file that a contract holds for its one table, or for the one of that name. Raises `RuleError`."""
    return _Reading(table_node(root, table)).contract()


def table_node(root: Node, table: str | None) -> Node:
    """The object under `schema` that is meant."""
    version = root.child("apiVersion")
    if version is not None and not re.match(r"v?3\.", str(version.value)):
        raise RuleError(
            "this version of the contract standard is not read", place=version.place(), hint="this release reads v3"
        )
    objects = [node for node in root.children("schema") if isinstance(node.value, dict)]
    if not objects:
        where = root.child("schema") or root
        raise RuleError("the contract has no table", place=where.place(), hint="it needs an object under `schema:`")
    if table is None and len(objects) == 1:
        return objects[0]
    names = [[node.text() for part in ("name", "physicalName") if (node := one.child(part))] for one in objects]
    meant = [node for node, known in zip(objects, names, strict=True) if table in known]
    if len(meant) == 1:
        return meant[0]
    listed = ", ".join(str(known[0]) for known in names if known)
    if table is None:
        message, hint = f"the contract has several tables: {listed}", "choose one by --table NAME"
    else:
        flat = [str(name) for known in names for name in known]
        message = f"the contract has {'several tables' if meant else 'no table'} called {table}"
        hint = (None if meant else did_you_mean(table, flat)) or f"the tables are {listed}"
    raise RuleError(message, place=root.value["schema"][0].place() if isinstance(root.value, dict) else None, hint=hint)


Fields: TypeAlias = "dict[str, tuple[Node, Node]]"
"""Of a mapping: each key's text with its key and value."""


@dataclass
class _Item:
    """A rule to be, as a node of a rule file, and the check that it comes from."""

    node: Node
    check: str
    native: bool


class _Reading:
    """One table of a contract, read once."""

    def __init__(self, table: Node) -> None:
        self.table = table
        self.skipped: list[Skipped] = []
        self.notes: list[str] = []
        self.items: list[_Item] = []
        self.properties = properties_of(table)
        self.errors: list[RuleError] = []

    def contract(self) -> Contract:
        name = self.table.child("name")
        if name is None:
            raise RuleError("the table has no `name`", place=self.table.place())
        for check in self.table.children("quality"):
            with collecting(self.errors):
                self._check(check, None)
        for one in self.properties:
            self._property(one)
        parts = {"table": name, "rules": self._made([item.node for item in self._without_repeats()])}
        if key := [one.column for one in sorted((one for one in self.properties if one.position), key=Property.rank)]:
            parts["key"] = self._made(key)
        if types := column_types(self.properties):
            parts["columns"] = self._mapping({str(one.value): (one, spelled) for one, spelled in types})
        root = self._mapping({part: (self._text(part, node), node) for part, node in parts.items()})
        self.skipped.sort(key=lambda one: (one.place.line or 0, one.place.column or 0))
        return Contract(root, self.skipped, self.notes, self.errors)

    def _property(self, one: Property) -> None:
        for check in one.node.children("quality"):
            with collecting(self.errors):
                self._check(check, one)
        for inner in one.inner:
            self._property(inner)
        unique = one.node.child("unique")
        if unique is None or unique.typed() is not True:
            return
        if one.path:
            self._skip(f"unique of {one.name}", "a field inside a column cannot be compared", unique)
        else:
            self._add_unique(f"unique of {one.name}", [one.column], None, unique)

    def _check(self, check: Node, owner: Property | None) -> None:
        """One item of a `quality`: a rule, or one more that is skipped."""
        if not isinstance(check.value, dict):
            raise RuleError("a quality check must be a mapping", place=check.place())
        name = next((str(node.value) for part in ("id", "name") if (node := check.child(part))), None)
        engine, kind = _word(check, "engine"), _word(check, "type")
        metric = _word(check, "metric") or _word(check, "rule")
        said = f"check {name}" if name else "a check"
        if is_ours(check):
            self._add_custom(said, check)
        elif kind == "text":
            self._skip(said, "a text for people", check)
        elif kind == "sql" or check.child("query") is not None:
            self._skip(said, "an SQL query", check)
        elif kind == "custom" or engine is not None:
            self._skip(said, f"a check of {engine}" if engine else "no engine is named", check)
        elif metric not in _METRICS:
            self._skip(said, f"the metric {metric} is not ours" if metric else "it names no metric", check)
        else:
            self._add_duplicates(said, check, owner)

    def _add_duplicates(self, said: str, check: Node, owner: Property | None) -> None:
        operators = [part for part in _OPERATORS if check.child(part) is not None]
        if not any((part, _number(check.child(part))) in _NONE_AT_ALL for part in operators) or len(operators) > 1:
            self._skip(said, "only `mustBe: 0` is a rule; a threshold counts rows", check)
            return
        arguments = check.child("arguments")
        given = arguments.value if arguments is not None and isinstance(arguments.value, dict) else {}
        if others := sorted(set(given) - {"properties"}):
            self._skip(said, f"the argument {others[0]} is not known", check)
            return
        if "properties" in given:
            named = given["properties"][1]
            columns = [self._column(node) for node in (named.value if isinstance(named.value, list) else [named])]
        elif owner is not None and owner.path:
            self._skip(said, "a field inside a column cannot be compared", check)
            return
        else:
            columns = [owner.column] if owner is not None else []
        if columns:
            self._add_unique(said, columns, check, check)
        else:
            self._skip(said, "it names no properties", check)

    def _column(self, node: Node) -> Node:
        """The column of the property that an argument names; by that name where the contract lists no properties."""
        found = next((one for one in self.properties if node.value in (one.name, one.column.value)), None)
        if found is None and self.properties:
            known = [one.name for one in self.properties]
            raise RuleError(
                f"the table has no property {node.value}",
                place=node.place(),
                hint=did_you_mean(str(node.value), known) or "the properties are " + ", ".join(known),
            )
        return found.column if found else node

    def _add_unique(self, said: str, columns: list[Node], check: Node | None, at: Node) -> None:
        fields = self._about(check) if check is not None else {}
        if "name" not in fields:
            name = self._text("_".join(str(one.value) for one in columns) + "_is_unique", at)
            fields["name"] = (name, name)
        fields["unique"] = (at, self._made(columns, at))
        self._add(said, fields, at, native=True)

    def _add_custom(self, said: str, check: Node) -> None:
        implementation = check.child("implementation")
        if implementation is None or isinstance(implementation.value, list) or implementation.is_null:
            where = implementation or check
            raise RuleError(
                "`implementation` is missing or no rule",
                place=where.place(),
                hint="a mapping, such as {fd: zip -> city}, or the text of a `deny`",
            )
        fields = self._about(check)
        if isinstance(implementation.value, str):
            kind, text = _kind_and_text(implementation)
            fields[kind] = (implementation, text)
        else:
            for part, (key, value) in implementation.value.items():
                if part in fields and part in ("severity", "description"):
                    raise RuleError(f"`{part}` is given twice", place=key.place(), hint="keep one of them")
                known = fields["metadata"][1].value if part == "metadata" and "metadata" in fields else None
                if isinstance(known, dict) and isinstance(value.value, dict):
                    fields[part] = (key, self._mapping({**known, **value.value}, value))
                else:
                    fields[part] = (key, value)
        if "name" not in fields:
            raise RuleError("the check has no `id`", place=check.place(), hint="it becomes the name of the rule")
        self._add(said, fields, check, native=False)

    def _add(self, said: str, fields: Fields, at: Node, *, native: bool) -> None:
        self.items.append(_Item(self._mapping(fields, at), said, native))

    def _about(self, check: Node) -> Fields:
        """What a check says of itself, under the names that a rule has for it."""
        fields: Fields = {}
        for part in ("name", "id"):  # the id last: it is the stable one
            if (node := check.child(part)) is not None and not node.is_null:
                fields["name"] = (node, node)
        if (node := check.child("description")) is not None and not node.is_null:
            fields["description"] = (node, node)
        if (node := check.child("severity")) is not None and not node.is_null:
            known = _SEVERITIES.get(str(node.value).strip().casefold())
            if known is None:
                self.notes.append(f"{node.place()}: the severity {node.value} is not known; it is taken as error")
            else:
                fields["severity"] = (node, self._text(known, node))
        for part in ("schedule", "scheduler"):
            if (node := check.child(part)) is not None:
                self.notes.append(f"{node.place()}: `{part}` is not followed: rules are held all the time")
        metadata = {part: pair for part, pair in _pairs(check) if part in METADATA}
        if check.child("id") is not None and isinstance(check.value, dict) and "name" in check.value:
            metadata["name"] = check.value["name"]
        for custom in check.children("customProperties"):
            name, value = custom.child("property"), custom.child("value")
            if name is None or value is None or not isinstance(name.value, str):
                raise RuleError("a custom property has a `property` and a `value`", place=custom.place())
            if name.value in metadata:
                raise RuleError(f"`{name.value}` is given twice", place=name.place(), hint="keep one of them")
            metadata[name.value] = (name, value)
        if metadata:
            fields["metadata"] = (check, self._mapping(metadata, check))
        return fields

    def _without_repeats(self) -> list[_Item]:
        """The items, less those of the standard's own checks that say what another item says."""
        first = {print_: item for item in self.items if not item.native for print_ in _meanings(item)}
        kept = []
        for item in self.items:
            if item.native:
                meaning = _meanings(item)
                said = next((first[one] for one in meaning if one in first), None)
                if said is not None:
                    where = said.node.place().line
                    self._skip(item.check, f"{said.check} (line {where}) says the same", item.node)
                    continue
                first.update(dict.fromkeys(meaning, item))
            kept.append(item)
        return kept

    def _skip(self, said: str, reason: str, at: Node) -> None:
        self.skipped.append(Skipped(said, reason, at.place()))

    def _text(self, text: str, at: Node) -> Node:
        return Node(text, at.document, at.begin, at.end)

    def _made(self, nodes: list[Node], at: Node | None = None) -> Node:
        at = at or self.table
        return Node(list(nodes), at.document, at.begin, at.end)

    def _mapping(self, pairs: Fields, at: Node | None = None) -> Node:
        at = at or self.table
        return Node(pairs, at.document, at.begin, at.end)


def _pairs(node: Node) -> list[tuple[str, tuple[Node, Node]]]:
    return list(node.value.items()) if isinstance(node.value, dict) else []


def _word(check: Node, part: str) -> str | None:
    node = check.child(part)
    return node.value if node is not None and isinstance(node.value, str) and not node.is_null else None


def _number(node: Node | None) -> float | None:
    if node is None or not isinstance(node.value, str):
        return None
    with suppress(ValueError):
        return float(node.value)
    return None


def _meanings(item: _Item) -> list[str]:
    """The fingerprints of an item's rules; none where it cannot be read, which is told when it is."""
    with suppress(ValidationError, RuleError):
        return [rule.fingerprint for rule in rules_of_item(RuleModel.model_validate(item.node.text()), item.node)]
    return []


def _kind_and_text(node: Node) -> tuple[str, Node]:
    """A rule that is one text: `fd: zip -> city`, or what a `deny` says without the word."""
    assert isinstance(node.value, str)
    found = _KIND.match(node.value)
    if found is None:
        return "deny", node
    raw = re.search(rf"\b{found[1]}\s*:", node.document.text[node.begin : node.end])
    begin = node.begin + (raw.end() if raw else 0)
    return found[1], Node(node.value[found.end() :].strip(), node.document, begin, node.end)

"""Rules written as checks of a data contract, and a contract made for them where there is none.

A rule that says that columns are unique becomes the standard's own metric `duplicateValues`, which other tools hold
too; every other rule a check with `engine: weever`. Reading what was written gives the same rules, key and types.
Cost: linear in the rules.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from weever_stream.rules.model import Column, Op
from weever_stream.rules.odcs import ENGINE, METADATA
from weever_stream.rules.odcs_columns import described
from weever_stream.rules.writing import write_rule
from weever_stream.rules.yamltext import dump

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weever_stream.rules.file import RuleFile
    from weever_stream.rules.model import Rule

__all__ = ["API_VERSION", "check_of", "unique_columns", "write_contract"]

API_VERSION = "v3.1.0"
"""The first that has `metric` and the `id` of a check."""
_STABLE_ID = re.compile(r"[A-Za-z0-9_-]+")
_DIMENSIONS = ("accuracy", "completeness", "conformity", "consistency", "coverage", "timeliness", "uniqueness")


def write_contract(rules: RuleFile) -> str:
    """A contract with the table, its key, the columns that are known, and the rules: as little as is valid."""
    table = {
        "name": rules.table,
        "logicalType": "object",
        "properties": _properties(rules),
        "quality": [check_of(rule) for rule in rules.rules],
    }
    return dump(
        {
            "version": "1.0.0",
            "apiVersion": API_VERSION,
            "kind": "DataContract",
            "id": rules.table,
            "status": "draft",
            "schema": [{name: value for name, value in table.items() if value}],
        }
    )


def _properties(rules: RuleFile) -> list[dict[str, Any]]:
    """The columns of the key and those with types. Of others nothing is known but the name, which rules tell."""
    found = []
    for name in dict.fromkeys([*rules.key, *rules.columns]):
        one: dict[str, Any] = {"name": name}
        if name in rules.columns:
            one |= described(rules.columns[name])
        if name in rules.key:
            one |= {"required": True, "primaryKey": True, "primaryKeyPosition": rules.key.index(name) + 1}
        found.append(one)
    return found


def check_of(rule: Rule, *, native: bool = True, properties: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The rule as an item of `quality`. `properties` gives the property of a column where they are called differently.

    With `native` a rule of uniqueness is a `duplicateValues`, unless it says what only our own form can say.
    """
    stable = _STABLE_ID.fullmatch(rule.name) is not None
    check: dict[str, Any] = {"id" if stable else "name": rule.name}
    ours = {"owner": rule.owner, "spread": rule.spread if rule.spread > 1 else None, "alerts": dict(rule.alerts)}
    ours = {name: value for name, value in ours.items() if value}
    columns = unique_columns(rule)
    if columns and native and not ours:
        called = properties or {}
        named = [called.get(column, column) for column in columns]
        check |= {"metric": "duplicateValues", "mustBe": 0, "arguments": {"properties": named}}
    else:
        check |= {"type": "custom", "engine": ENGINE, "implementation": {"deny": write_rule(rule), **ours}}
    check["severity"] = rule.severity
    if rule.description is not None:
        check["description"] = rule.description
    return check | _told(rule.metadata, named=stable)


def unique_columns(rule: Rule) -> list[str]:
    """The columns of a rule that says of columns that they are unique; none for any other rule."""
    columns = []
    for predicate in rule.predicates:
        left, right = predicate.left, predicate.right
        if predicate.op is not Op.EQ or not isinstance(left, Column) or not isinstance(right, Column):
            return []
        if left.name != right.name or left.row == right.row:
            return []
        columns.append(left.name)
    return columns


def _told(metadata: Mapping[str, object], *, named: bool) -> dict[str, Any]:
    """Metadata under the standard's own fields where it fits them, else as custom properties."""
    fields = {name: value for name, value in metadata.items() if _fits(name, value, named)}
    custom = [{"property": name, "value": value} for name, value in metadata.items() if name not in fields]
    return fields | ({"customProperties": custom} if custom else {})


def _fits(name: str, value: object, named: bool) -> bool:
    if name == "dimension":
        return value in _DIMENSIONS
    if name == "tags":
        return isinstance(value, list) and all(isinstance(tag, str) for tag in value)
    if name == "authoritativeDefinitions":
        known = {"id", "url", "type", "description"}
        return isinstance(value, list) and all(
            isinstance(one, dict)
            and {"url", "type"} <= one.keys() <= known
            and all(isinstance(s, str) for s in one.values())
            for one in value
        )
    return isinstance(value, str) and (name in METADATA or (name == "name" and named))

"""One item of a file's `rules:` turned into the rules it stands for, with every name and predicate at its place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from weever_stream.errors import RuleError
from weever_stream.rules.build import About, NamedPlace, expand_fd, expand_order, expand_unique
from weever_stream.rules.filemodel import KINDS, RuleModel
from weever_stream.rules.notations import read_notation
from weever_stream.rules.parse import parse_names

if TYPE_CHECKING:
    from weever_stream.rules.model import Rule
    from weever_stream.rules.nodes import Node

__all__ = ["rules_of_item"]


def rules_of_item(item: RuleModel, node: Node) -> tuple[Rule, ...]:
    """The rules of one item: one, or one for each column on the right of an `fd` or `order`."""
    alerts = item.alerts.model_dump(by_alias=True, exclude_none=True, exclude_unset=True) if item.alerts else {}
    return tuple(replace(rule, spread=item.spread or 1, alerts=alerts) for rule in _denials(item, node))


def _denials(item: RuleModel, node: Node) -> tuple[Rule, ...]:
    _refuse_control_characters(item, node)
    filtering = node.child("filter")
    about = About(
        item.name,
        item.severity,
        filtering.source(item.name) if filtering and item.filter is not None else None,
        item.description,
        item.owner,
        item.metadata,
        node.place(item.name),
    )
    kind = next(kind for kind in KINDS if getattr(item, kind) is not None)
    said = node.child(kind)
    assert said is not None
    if kind == "deny":
        return (about.rule(read_notation(said.source(item.name))),)
    if kind == "unique":
        (columns,) = _lists(said, item.name, "unique", ())
        return expand_unique(columns, about)
    if kind == "fd":
        determinants, dependents = _lists(said, item.name, "fd", ("determinants", "dependents"))
        return expand_fd(determinants, dependents, about)
    by, of, within = _lists(said, item.name, "order", ("by", "of", "within"))
    return expand_order(by, of, within, about)


def _refuse_control_characters(item: RuleModel, node: Node) -> None:
    if not item.name.isprintable() or item.name != item.name.strip():
        named = node.child("name") or node
        raise RuleError("a rule's name is printable and has no space around it", place=named.place())


def _lists(
    said: Node, rule: str, kind: Literal["unique", "fd", "order"], fields: tuple[str, ...]
) -> list[list[NamedPlace]]:
    """The lists of columns of a sugar: parsed from its text, or exactly as written in a list or mapping."""
    if isinstance(said.value, str):
        source = said.source(rule)
        lists = [
            [NamedPlace(column.name, source.place(column.start, column.end)) for column in names]
            for names in parse_names(source, kind)
        ]
        return lists + [[] for _ in range(len(fields) - len(lists))]
    if isinstance(said.value, list):
        return [_columns(said, rule)]
    return [_columns(child, rule) if (child := said.child(name)) else [] for name in fields]


def _columns(node: Node, rule: str) -> list[NamedPlace]:
    if isinstance(node.value, list):
        return [NamedPlace(str(item.value), item.place(rule)) for item in node.value]
    return [] if node.is_null else [NamedPlace(str(node.value), node.place(rule))]

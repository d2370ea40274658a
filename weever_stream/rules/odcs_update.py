"""Rules put into a data contract that is already there, without touching a letter of what is not ours.

Ours are the checks of the chosen table with `engine: weever`. Those that say just what a rule says stay, those that say
something else go, and rules that are said nowhere are added behind the last check of the table. Comments, order and
spelling of all other lines stay. What comes out is read again before it is given back, and must hold the rules and
everything that was there. The standard's own checks (`duplicateValues`, `unique`) are not ours: they stay, and a rule
that says the same under another name or severity is written beside them, where it counts instead of them. Cost: the
contract is read three times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weever_stream.errors import RuleError
from weever_stream.rules.file import read_rules_text
from weever_stream.rules.nodes import Node, read_document, read_nodes
from weever_stream.rules.odcs import is_contract, is_ours, table_node
from weever_stream.rules.odcs_writing import check_of
from weever_stream.rules.spans import Span, every, line_end, spans_of, with_breaks_of
from weever_stream.rules.yamltext import dump

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weever_stream.errors import Place
    from weever_stream.rules.file import RuleFile
    from weever_stream.rules.model import Rule

__all__ = ["update_contract"]


def update_contract(content: bytes | str, rules: RuleFile, *, path: str | None = None, table: str | None = None) -> str:
    """The text of the contract with these rules in it. Raises `RuleError` where the contract cannot be changed so."""
    document = read_document(content, path)
    root = read_nodes(document)
    if root is None or not isinstance(root.value, dict) or not is_contract(root):
        raise RuleError(
            "this is no data contract", place=document.place(0, 0), hint="it says `apiVersion` and `kind: DataContract`"
        )
    node = table_node(root, table)
    there = read_rules_text(document.text, path=path, table=table)
    if rules.key and there.key and rules.key != there.key:
        raise RuleError(
            f"the key of the contract is ({', '.join(there.key)}), that of the rules ({', '.join(rules.key)})",
            place=node.place(),
            hint="make them the same, or leave the rules' key out",
        )
    wanted = {rule.name: rule for rule in rules.rules}
    ours = {_spot(check.place()): check.begin for check in _checks(node) if is_ours(check)}
    kept: set[str] = set()
    leaving: list[int] = []
    for spot, group in _by_place(there.rules).items():
        said = {rule.name for rule in group if _same(rule, wanted.get(rule.name))}
        if len(said) < len(group) and spot in ours:
            leaving.append(ours[spot])
        else:
            kept |= said
    # Ours even where the standard has a metric for it: what is not ours could not be taken away again.
    coming = [check_of(rule, native=False) for name, rule in wanted.items() if name not in kept]
    text = _edited(document.text, node, leaving, coming)
    _hold(text, root, rules, there, path, table)
    return text


def _spot(place: Place | None) -> tuple[int, int]:
    return (place.line or 0, place.column or 0) if place else (0, 0)


def _by_place(rules: tuple[Rule, ...]) -> dict[tuple[int, int], list[Rule]]:
    """The rules of each check, by its place."""
    groups: dict[tuple[int, int], list[Rule]] = {}
    for rule in rules:
        groups.setdefault(_spot(rule.place), []).append(rule)
    return groups


def _checks(table: Node) -> Iterator[Node]:
    """Every check of a table, those of its properties too."""
    yield from table.children("quality")
    for one in table.children("properties"):
        yield from _checks(one)
    if (items := table.child("items")) is not None:
        yield from _checks(items)


def _same(one: Rule, other: Rule | None) -> bool:
    """Whether a rule is said already, with all that goes with it."""
    if other is None or one != other:
        return False
    parts = ("description", "owner", "metadata", "alerts", "spread")
    return all(getattr(one, part) == getattr(other, part) for part in parts)


def _edited(text: str, table: Node, leaving: list[int], coming: list[dict[str, Any]]) -> str:
    """The text without the checks that begin there, and with those that come."""
    if not leaving and not coming:
        return text
    spans = list(every(spans_of(text)))
    edits: list[tuple[int, int, str]] = []
    own = _list_of(table, text, spans)
    lists = [span for span in spans if any(one.begin in leaving for one in span.items) and not _is_mapping(span, text)]
    for span in lists:
        if span.flow:
            raise _not_editable(table)
        going = [one for one in span.items if one.begin in leaving]
        if len(going) == len(span.items) and not (span is own and coming):
            # Nothing is left of the list, and a field without a value would be no list.
            edits.append((text.rindex(":", 0, span.begin) + 1, line_end(text, span.end), " []\n"))
            continue
        edits += [(_line_begin(text, one.begin), line_end(text, one.end), "") for one in going]
    if coming:
        edits.append(_addition(text, table, own, spans, coming))
    for begin, end, new in sorted(edits, key=lambda edit: edit[:2], reverse=True):
        before = text[:begin]
        gap = "\n" if begin == end and before and not before.endswith("\n") else ""
        text = before + gap + new + text[end:]
    return text


def _is_mapping(span: Span, text: str) -> bool:
    return not span.flow and not text.startswith("-", span.begin)


def _list_of(table: Node, text: str, spans: list[Span]) -> Span | None:
    """The list of the table's own checks, where it has one with something in it."""
    checks = table.children("quality")
    if not checks:
        return None
    return next((span for span in spans if span.items and span.items[0].begin == checks[0].begin
                 and (span.flow or text.startswith("-", span.begin))), None)  # fmt: skip


def _addition(
    text: str, table: Node, own: Span | None, spans: list[Span], coming: list[dict[str, Any]]
) -> tuple[int, int, str]:
    """Where the checks that come are put, and their lines."""
    if own is not None:
        if own.flow:
            raise _not_editable(table)
        at = line_end(text, own.end)
        return at, at, _lines(coming, own.column, text)
    mapping = next((span for span in spans if span.begin == table.begin and span.items and not span.flow), None)
    if mapping is None:
        raise _not_editable(table)
    if isinstance(table.value, dict) and "quality" in table.value:
        key = table.value["quality"][0]
        value = next(
            two for one, two in zip(mapping.items[::2], mapping.items[1::2], strict=True) if one.begin == key.begin
        )
        lines = with_breaks_of(text, "\n") + _lines(coming, mapping.column + 2, text)
        return text.index(":", key.end) + 1, line_end(text, max(value.end, key.end)), lines
    at = line_end(text, mapping.end)
    return at, at, with_breaks_of(text, " " * mapping.column + "quality:\n") + _lines(coming, mapping.column + 2, text)


def _lines(checks: list[dict[str, Any]], column: int, text: str) -> str:
    return with_breaks_of(text, "".join(f"{' ' * column}{line}\n" for line in dump(checks).splitlines()))


def _line_begin(text: str, begin: int) -> int:
    """The beginning of the line with the dash of an item."""
    return text.rfind("\n", 0, text.rindex("-", 0, begin)) + 1


def _not_editable(table: Node) -> RuleError:
    return RuleError(
        "the checks of this table are written in brackets and cannot be changed line by line",
        place=table.place(),
        hint="write its `quality:` with a line and a dash for each check",
    )


def _hold(text: str, root: Node, rules: RuleFile, there: RuleFile, path: str | None, table: str | None) -> None:
    """Reads what was written: the rules are in it, and so is all that was not ours."""
    now = read_rules_text(text, path=path, table=table)
    found = {rule.name: rule for rule in now.rules}
    again = read_nodes(read_document(text, path))
    if (
        again is None
        or not all(_same(rule, found.get(rule.name)) for rule in rules.rules)
        or (now.key, now.columns) != (there.key, there.columns)
        or _others(again, table) != _others(root, table)
    ):
        raise RuleError(
            "the contract is written in a way that cannot be changed line by line",
            place=table_node(root, table).place(),
            hint="put the checks in by hand: weever convert --to odcs prints them",
        )


def _others(root: Node, table: str | None) -> Any:
    """All that a contract says, less our checks of the table."""
    chosen = table_node(root, table)

    def told(node: Node, inside: bool) -> Any:
        inside = inside or node is chosen
        if isinstance(node.value, dict):
            pairs = {key: told(value, inside) for key, (_, value) in node.value.items()}
            if inside and pairs.get("quality", True) in ([], None):
                del pairs["quality"]
            return pairs
        if isinstance(node.value, list):
            return [told(one, inside) for one in node.value if not (inside and is_ours(one))]
        return None if node.is_null else node.value

    return told(root, False)

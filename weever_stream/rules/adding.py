"""A rule put into a rule file that is already there, without touching a letter of anything else.

It goes behind the last rule, as that is indented, before the comments and empty lines that follow. What comes out is
read again before it is given back: it must hold the rules that were there, the new one, and nothing else that is new. A
file in which that cannot be done, one in brackets as JSON is, is refused; `snippet` then gives the lines to put in by
hand. Cost: the file is read three times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weever_stream.errors import RuleError
from weever_stream.rules.file import read_rules_text
from weever_stream.rules.nodes import read_document, read_nodes
from weever_stream.rules.spans import line_end, spans_of, with_breaks_of
from weever_stream.rules.writing import write_rule
from weever_stream.rules.yamltext import dump

if TYPE_CHECKING:
    from weever_stream.rules.file import RuleFile
    from weever_stream.rules.model import Rule
    from weever_stream.rules.nodes import Node
    from weever_stream.rules.source import Document
    from weever_stream.rules.spans import Span

__all__ = ["add_rule", "snippet"]

_INDENT = 2


def add_rule(content: bytes | str, rule: Rule, *, path: str | None = None) -> str:
    """The text of a rule file with one rule more. Raises `RuleError` where its name is taken or it cannot be put in."""
    document = read_document(content, path)
    file = read_rules_text(document.text, path=path)
    _refuse_known(file, rule)
    root = read_nodes(document)
    if file.contract or root is None or not isinstance(root.value, dict) or "rules" not in root.value:
        raise _not_editable(document)
    text = _with(document, root, rule)
    if not _holds(text, path, file, root, rule):
        raise _not_editable(document)
    # A mark of the byte order is not part of the text, and stays.
    marked = content.startswith(b"\xef\xbb\xbf") if isinstance(content, bytes) else content.startswith("\ufeff")
    return ("\ufeff" if marked else "") + text


def snippet(rule: Rule, column: int = _INDENT) -> str:
    """The lines of a rule, as an item of `rules:`."""
    item: dict[str, Any] = {"name": rule.name, "deny": write_rule(rule), "severity": rule.severity}
    if rule.description:
        item["description"] = rule.description
    return "".join(f"{' ' * column}{line}\n" for line in dump([item]).splitlines())


def _refuse_known(file: RuleFile, rule: Rule) -> None:
    for one in file.rules:
        if one.fingerprint == rule.fingerprint:
            raise RuleError(f"the file has this rule already: it is called {one.name}", place=one.place)
        if rule.name in (one.name, one.name.partition(".")[0]):
            raise RuleError(
                f"the file has another rule that is called {rule.name}",
                place=one.place,
                hint="rename that one, or put the new one in by hand under another name",
            )


def _with(document: Document, root: Node, rule: Rule) -> str:
    assert isinstance(root.value, dict)
    text, mapping = document.text, spans_of(document.text)
    if mapping.flow:
        raise _not_editable(document)
    key = root.value["rules"][0]
    pairs = zip(mapping.items[::2], mapping.items[1::2], strict=True)
    rules: Span = next(value for name, value in pairs if name.begin == key.begin)
    if rules.items and not rules.flow:
        return _put(text, line_end(text, rules.end), snippet(rule, rules.column))
    if rules.items or not root.children("rules") == []:
        raise _not_editable(document)
    # `rules: []`: the brackets go, and what else is in their line stays.
    emptied = text[: rules.begin].rstrip(" ") + text[rules.end :]
    return _put(emptied, line_end(emptied, key.end), snippet(rule, mapping.column + _INDENT))


def _put(text: str, at: int, lines: str) -> str:
    before = text[:at]
    gap = "\n" if before and not before.endswith("\n") else ""
    return before + with_breaks_of(text, gap + lines) + text[at:]


def _holds(text: str, path: str | None, file: RuleFile, root: Node, rule: Rule) -> bool:
    """Whether a text says what the file said, and the rule."""
    try:
        now, again = read_rules_text(text, path=path), read_nodes(read_document(text, path))
    except RuleError:
        return False
    if again is None or now.rules[:-1] != file.rules:
        return False
    added, said, before = now.rules[-1], again.typed(), root.typed()
    same = (added.name, added.fingerprint, added.severity) == (rule.name, rule.fingerprint, rule.severity)
    said["rules"], before["rules"] = said["rules"][:-1], before["rules"] or []
    return same and added.description == rule.description and bool(said == before)


def _not_editable(document: Document) -> RuleError:
    return RuleError(
        "the rules of this file are written in a way that cannot be changed line by line",
        place=document.place(0, 0),
        hint="put the lines of the rule in by hand; or write `rules:` with a line and a dash for each rule",
    )

"""YAML as a tree of nodes that know their place, read safely and within limits.

Built from the parser's events, never by constructing objects: tags other than the plain ones are refused, repeated
keys too, and what aliases stand for counts as often as it is repeated, so that a few lines cannot swell to gigabytes.
Scalars stay text. `typed` gives them YAML 1.2's meaning where a value and not a text is wanted: `no` and `on` are
words, only `true` and `false` are booleans. Cost: linear in the file; 100,000 lines take about a second.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from weever_stream.errors import RuleError
from weever_stream.rules.source import Document, Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weever_stream.errors import Place

__all__ = ["MAX_ALIASES", "MAX_BYTES", "MAX_DEPTH", "MAX_NODES", "Node", "read_document", "read_nodes"]

MAX_BYTES = 4_000_000
MAX_DEPTH = 50
MAX_ALIASES = 1_000
MAX_NODES = 2_000_000

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_YAML = "tag:yaml.org,2002:"
_PLAIN_TAGS = {None, "!", *(_YAML + name for name in ("str", "int", "float", "bool", "null", "seq", "map"))}
_NULLS = ("", "~", "null", "Null", "NULL")
_INTEGER = re.compile(r"[-+]?[0-9]{1,19}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]{1,3})?")


@dataclass
class Node:
    """A scalar (`value` is text), a list of nodes, or a mapping from a key's text to its key and value nodes."""

    value: str | list[Node] | dict[str, tuple[Node, Node]]
    document: Document
    begin: int
    end: int
    plain: bool = False
    """A scalar without quotes, which may be a null, a number or a boolean."""
    size: int = 1
    """How many nodes it stands for, aliases written out."""

    def place(self, rule: str | None = None) -> Place:
        """Where it begins."""
        return self.document.place(self.begin, self.end, rule)

    def child(self, part: str | int) -> Node | None:
        """The value under a key or at an index, if there is one."""
        if isinstance(self.value, dict) and part in self.value:
            return self.value[str(part)][1]
        if isinstance(self.value, list) and isinstance(part, int) and part < len(self.value):
            return self.value[part]
        return None

    def children(self, part: str) -> list[Node]:
        """The items of the list under a key; none where there is no list."""
        under = self.child(part)
        return under.value if under is not None and isinstance(under.value, list) else []

    def place_of(self, text: str) -> Place:
        """The place of a key or scalar of that text within this node, or of the node itself."""
        if isinstance(self.value, dict):
            nodes = [node for pair in self.value.values() for node in pair]
        else:
            nodes = self.value if isinstance(self.value, list) else []
        return next((node for node in nodes if node.value == text), self).place()

    def source(self, rule: str | None = None) -> Source:
        """A scalar as text to parse."""
        assert isinstance(self.value, str)
        return Source(self.value, self.document, self.begin, self.end, rule)

    @property
    def is_null(self) -> bool:
        """Whether nothing is written here, or `null` or `~`."""
        return self.plain and self.value in _NULLS

    def text(self) -> Any:
        """The content with every scalar as the text that was written; nulls are None."""
        if isinstance(self.value, str):
            return None if self.is_null else self.value
        if isinstance(self.value, list):
            return [item.text() for item in self.value]
        return {key: value.text() for key, (_, value) in self.value.items()}

    def typed(self) -> Any:
        """The content with unquoted scalars as YAML 1.2 takes them: null, true, false, numbers, else text."""
        if isinstance(self.value, list):
            return [item.typed() for item in self.value]
        if isinstance(self.value, dict):
            return {key: value.typed() for key, (_, value) in self.value.items()}
        if not self.plain:
            return self.value
        if self.value in _NULLS:
            return None
        if self.value.lower() in ("true", "false"):
            return self.value.lower() == "true"
        if _INTEGER.fullmatch(self.value):
            return int(self.value)
        return float(self.value) if _FLOAT.fullmatch(self.value) else self.value


def read_document(content: bytes | str, name: str | None) -> Document:
    """The text of a file, if it is small enough and UTF-8."""
    if len(content) > MAX_BYTES:
        raise RuleError(
            f"the file is larger than {MAX_BYTES:,} bytes", place=Document("", name).place(0, 0), hint="split the rules"
        )
    if isinstance(content, str):
        return Document(content.removeprefix("\ufeff"), name)
    try:
        return Document(content.decode("utf-8-sig"), name)
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8", "replace")
        place = Document(before, name).place(len(before), len(before))
        raise RuleError("the file is not UTF-8", place=place, hint="save it as UTF-8") from None


def read_nodes(document: Document) -> Node | None:
    """The root of the one YAML document in the text, or None where it is empty. Raises only `RuleError`."""
    try:
        return _Composer(document).compose(yaml.parse(document.text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = 0 if mark is None or mark.index is None else mark.index
        problem = error.problem or "the YAML cannot be read"
        raise RuleError(f"not YAML: {problem}", place=document.place(at, at + 1), hint=_hint(problem)) from None
    except (yaml.YAMLError, UnicodeError) as error:
        reason = str(error).splitlines()[0] if str(error) else "it cannot be read"
        at = getattr(error, "position", 0) or 0
        place = document.place(min(at, len(document.text)), at + 1)
        raise RuleError(f"not YAML: {reason}", place=place) from None


def _hint(problem: str) -> str | None:
    if "cannot start any token" in problem:
        return "indent with spaces, not tabs; a text that begins with one of @ ` % { [ ! & * is put in quotes"
    if "expected tag URI" in problem or "tag directive" in problem or "whitespace or line break" in problem:
        return "a text that begins with ! is put in quotes"
    if "expected key" in problem or "expected <block end>" in problem:
        return "a text that begins with a quote or a bracket ends with it: put the whole text in quotes"
    if "mapping values are not allowed" in problem:
        return "put the text in quotes: it contains a colon followed by a space"
    return None


class _Composer:
    """Makes nodes of events with a stack of its own, so that depth is counted and never met as recursion."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.anchors: dict[str, Node] = {}
        self.aliases = 0
        self.nodes = 0

    def compose(self, events: Iterator[Any]) -> Node | None:
        root: Node | None = None
        open_nodes: list[tuple[Node, str | None, list[Node]]] = []
        for event in events:
            if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                if len(open_nodes) >= MAX_DEPTH:
                    raise RuleError(f"nested deeper than {MAX_DEPTH} levels", place=self._place(event))
                self._check_tag(event)
                value: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
                node = Node(value, self.document, *_span(event))
                open_nodes.append((node, event.anchor, []))
                continue
            if isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                node, anchor, parts = open_nodes.pop()
                self._close(node, parts)
            elif isinstance(event, yaml.ScalarEvent):
                node, anchor = self._scalar(event), event.anchor
            elif isinstance(event, yaml.AliasEvent):
                node, anchor = self._alias(event), None
            elif isinstance(event, yaml.DocumentStartEvent) and root is not None:
                raise RuleError("the file holds a second document", place=self._place(event), hint="keep one")
            else:
                continue
            self._count(node, event)
            if anchor is not None:
                self.anchors[anchor] = node
            if open_nodes:
                open_nodes[-1][2].append(node)
            else:
                root = node
        return root

    def _scalar(self, event: Any) -> Node:
        self._check_tag(event)
        plain = not event.style and event.tag is None
        return Node(event.value, self.document, *_span(event), plain)

    def _alias(self, event: Any) -> Node:
        self.aliases += 1
        if self.aliases > MAX_ALIASES:
            raise RuleError(f"more than {MAX_ALIASES:,} aliases", place=self._place(event))
        if event.anchor not in self.anchors:
            raise RuleError(f"there is no anchor &{event.anchor} before this alias", place=self._place(event))
        return self.anchors[event.anchor]

    def _count(self, node: Node, event: Any) -> None:
        # A closed list or mapping already counted its parts; an alias repeats all that its anchor holds.
        self.nodes += node.size if isinstance(event, yaml.AliasEvent) else 1
        if self.nodes > MAX_NODES:
            raise RuleError(f"more than {MAX_NODES:,} values, aliases written out", place=self._place(event))

    def _close(self, node: Node, parts: list[Node]) -> None:
        node.size += sum(part.size for part in parts)
        if isinstance(node.value, list):
            node.value.extend(parts)
            return
        assert isinstance(node.value, dict)
        merged: list[Node] = []
        for key, value in zip(parts[::2], parts[1::2], strict=True):
            if not isinstance(key.value, str):
                raise RuleError("a key must be text", place=key.place())
            if key.value == "<<" and key.plain:
                merged += value.value if isinstance(value.value, list) else [value]
            elif key.value in node.value:
                raise RuleError(f"the key {key.value} is written twice", place=key.place(), hint="keep one of them")
            else:
                node.value[key.value] = (key, value)
        for other in merged:
            if not isinstance(other.value, dict):
                raise RuleError("only a mapping can be merged by <<", place=other.place())
            node.value.update({key: pair for key, pair in other.value.items() if key not in node.value})

    def _check_tag(self, event: Any) -> None:
        if event.tag not in _PLAIN_TAGS:
            raise RuleError(
                f"the tag {event.tag.replace(_YAML, '!!')} is not accepted",
                place=self._place(event),
                hint="write the value without a tag; a text that begins with ! is put in quotes",
            )

    def _place(self, event: Any) -> Place:
        return self.document.place(*_span(event))


def _span(event: Any) -> tuple[int, int]:
    return event.start_mark.index, event.end_mark.index

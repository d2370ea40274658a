"""Rule files: YAML with a table, its key and its rules, or plain text with one rule a line in any notation.

`read_rules` gives a `RuleFile` or raises every error it found, each with its line and column in the file. Ten thousand
rules take a few seconds. References such as `${env:NAME}` stay as they are written until `resolve` is called.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from weever_stream.errors import Place, RuleError, RuleErrors, TypeMismatchError, collecting, did_you_mean
from weever_stream.remote import LOCAL_HINT, remote_uri
from weever_stream.rules.bind import BoundRule, bind_all, unknown_hint
from weever_stream.rules.build import About
from weever_stream.rules.filemodel import FileModel, RuleModel
from weever_stream.rules.items import rules_of_item
from weever_stream.rules.lint import notes_on, repeats
from weever_stream.rules.nodes import MAX_BYTES, Node, read_document, read_nodes
from weever_stream.rules.notations import read_notation
from weever_stream.rules.odcs import Skipped, is_contract, read_contract
from weever_stream.rules.references import Secret, resolved
from weever_stream.rules.reserved import RENAME, is_reserved
from weever_stream.rules.shapes import shape_errors
from weever_stream.rules.source import Document, Source
from weever_stream.rules.types import ColumnType, Schema, type_of_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from weever_stream.rules.model import Rule

__all__ = ["MAX_RULES", "RuleFile", "content_of", "read_rules", "read_rules_text"]

MAX_RULES = 20_000
"""Of one file, a dependency counted once for each of its dependents."""
_VALUES = ("source", "sinks", "alerts", "metrics", "state", "learn", "spark", "version")
"""The fields that hold values and not texts of the rule language."""


@dataclass(frozen=True)
class RuleFile:
    """A table and its rules, as a file gives them."""

    table: str
    rules: tuple[Rule, ...]
    key: tuple[str, ...] = ()
    columns: Mapping[str, ColumnType] = field(default_factory=dict)
    source: Mapping[str, Any] | None = None
    sinks: tuple[Mapping[str, Any], ...] = ()
    alerts: tuple[Mapping[str, Any], ...] = ()
    metrics: Mapping[str, Any] | None = None
    state: Mapping[str, Any] | None = None
    learn: Mapping[str, Any] | None = None
    trigger: str | None = None
    spark: Mapping[str, Any] = field(default_factory=dict)
    name: str | Secret | None = None
    """The job's name; a `Secret` where it was written as a reference."""
    path: str | None = None
    notes: tuple[str, ...] = ()
    """What is not wrong but worth a look."""
    contract: bool = False
    """Whether it was read from a data contract."""
    skipped: tuple[Skipped, ...] = ()
    """The checks of a data contract that became no rules."""
    _root: Node | None = field(default=None, compare=False, repr=False)

    def select(self, names: Iterable[str]) -> RuleFile:
        """Only the rules of these names; the name of a rule that was written for several columns selects them all."""
        wanted = list(names)
        for name in wanted:
            if not any(_is_named(rule.name, name) for rule in self.rules):
                known = sorted({rule.name for rule in self.rules} | {_base(rule.name) for rule in self.rules})
                hint = did_you_mean(name, known) or "the rules are " + ", ".join(known[:12])
                raise RuleError(f"there is no rule {name}", hint=hint, place=_place_of_file(self.path))
        kept = tuple(rule for rule in self.rules if any(_is_named(rule.name, name) for name in wanted))
        return replace(self, rules=kept)

    def schema(self, found: Schema) -> dict[str, ColumnType | str]:
        """The column types of the source with the file's `columns:` in place of what was found."""
        return {**found, **self.columns}

    def bind(self, found: Schema) -> tuple[BoundRule, ...]:
        """All rules against the source's schema with the file's `columns:` put in. Raises every error together."""
        errors = [
            RuleError(f"{what} {name}, which is not a column", place=place, hint=unknown_hint(name, found))
            for what, name, place in self._named_columns()
            if name not in found
        ]
        bound: tuple[BoundRule, ...] = ()
        with collecting(errors):
            bound = bind_all(self.rules, self.schema(found))
        RuleErrors.raise_all(errors)
        return bound

    def node(self, name: str) -> Node | None:
        """Where a part of the file is written, to say in an error; None for rules that came from no file."""
        return self._root.child(name) if self._root else None

    def _named_columns(self) -> Iterable[tuple[str, str, Place | None]]:
        """The columns that the file names outside its rules, each with its place."""
        for part, names in (("key", self.key), ("columns", tuple(self.columns))):
            node = self._root and (self._root.child(part) or self._root.child("table"))
            for name in names:
                yield f"`{part}` names", name, node.place_of(name) if node else _place_of_file(self.path)

    def resolve(self, environ: Mapping[str, str]) -> RuleFile:
        """The file with `${env:NAME}` and `${file:/path}` filled in under source, sinks, state, learn and others.

        Values that hold a reference become `Secret`s. Raises all that are missing, with their places.
        """
        errors: list[RuleError] = []
        parts = {
            name: resolved(getattr(self, name), environ, self._root and self._root.child(name), errors)
            for name in ("name", "source", "sinks", "alerts", "metrics", "state", "learn", "spark")
        }
        RuleErrors.raise_all(errors)
        return replace(self, **parts)


def _base(name: str) -> str:
    return name.partition(".")[0]


def _is_named(rule: str, name: str) -> bool:
    return rule == name or rule.startswith(name + ".")


def _place_of_file(path: str | None) -> Place | None:
    return None if path is None else Place(path)


def read_rules(path: str | Path, *, table: str | None = None) -> RuleFile:
    """Reads a rule file: YAML, or for `.txt` and `.dc` one rule a line. Raises `RuleError` with every error found.

    A data contract (see `odcs`) is read as the rule file of its one table, or of the one that `table` names.
    """
    path = Path(path)
    return read_rules_text(
        content_of(path), path=str(path), listing=path.suffix.lower() in (".txt", ".dc"), table=table
    )


def content_of(path: Path) -> bytes:
    """The bytes of a file, of a too large one enough to see that it is."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        if uri := remote_uri(path):
            raise RuleError(f"{uri} cannot be read: it is no local file", hint=LOCAL_HINT) from None
        reason = error.strerror or type(error).__name__
        raise RuleError(f"{path} cannot be read: {reason}", hint="check the path of the rule file") from None


def read_rules_text(
    content: bytes | str, *, path: str | None = None, listing: bool = False, table: str | None = None
) -> RuleFile:
    """Reads the content of a rule file: YAML, or a listing with one rule a line."""
    document = read_document(content, path)
    if not document.text.strip():
        raise RuleError("the file is empty", place=document.place(0, 0), hint="it needs `table:` and `rules:`")
    return _read_listing(document) if listing else _read_yaml(document, table)


def _read_listing(document: Document) -> RuleFile:
    rules: list[Rule] = []
    errors: list[RuleError] = []
    at = 0
    for line in document.text.splitlines(keepends=True):
        text = line.strip()
        if text and not text.startswith("#"):
            begin = document.text.index(text, at)
            name = f"rule_{len(rules) + len(errors) + 1}"
            source = Source(text, document, begin, begin + len(text), name)
            about = About(name, place=source.place(0, len(text)))
            with collecting(errors):
                rules.append(about.rule(read_notation(source)))
        at += len(line)
    errors += repeats(rules)
    RuleErrors.raise_all(errors)
    return RuleFile(Path(document.name or "rows").stem, tuple(rules), path=document.name)


def _read_yaml(document: Document, table: str | None) -> RuleFile:
    root = read_nodes(document)
    if root is None or root.is_null:
        raise RuleError("the file is empty", place=document.place(0, 0), hint="it needs `table:` and `rules:`")
    if not isinstance(root.value, dict):
        raise RuleError("the file must be a mapping with `table:` and `rules:`", place=root.place())
    if is_contract(root):
        contract = read_contract(root, table)
        errors = contract.errors
        with collecting(errors):
            file = _read_root(contract.root, document)
        if errors:
            RuleErrors.raise_all(sorted(errors, key=_line))
        return replace(file, notes=(*file.notes, *contract.notes), contract=True, skipped=tuple(contract.skipped))
    if table is not None:
        raise RuleError("a rule file has one table", place=root.place(), hint="only of a data contract one is chosen")
    return _read_root(root, document)


def _read_root(root: Node, document: Document) -> RuleFile:
    written = root.children("rules")
    if len(written) > MAX_RULES:
        raise _too_many(written[MAX_RULES])
    plain = _plain(root)
    rules: list[Rule] = []
    errors: list[RuleError] = []
    try:
        model = FileModel.model_validate(plain)
    except ValidationError as error:
        errors += shape_errors(error, root)
        items = _sound_items(plain.get("rules"))
    else:
        items = dict(enumerate(model.rules))
    for index, item in items.items():
        with collecting(errors):
            rules += rules_of_item(item, written[index])
        if len(rules) > MAX_RULES:
            raise _too_many(written[index])
    columns = _columns(root, errors)
    errors += repeats(rules)
    if errors:
        RuleErrors.raise_all(sorted(errors, key=_line))
    key = _key(model, root)
    return RuleFile(
        table=model.table if isinstance(model.table, str) else model.table.name,
        rules=tuple(rules),
        key=key,
        columns=columns,
        source=model.source,
        sinks=tuple(model.sinks),
        alerts=tuple(model.alerts),
        metrics=model.metrics,
        state=model.state,
        learn=model.learn,
        trigger=model.trigger,
        spark=model.spark,
        name=model.name,
        path=document.name,
        notes=notes_on(rules, key),
        _root=root,
    )


def _too_many(node: Node) -> RuleError:
    return RuleError(
        f"the file has more than {MAX_RULES:,} rules; a dependency counts once for each of its dependents",
        place=node.place(),
        hint="cut it into several files",
    )


def _plain(root: Node) -> dict[str, Any]:
    """The file as pydantic takes it: text where the language is written, typed values elsewhere."""
    assert isinstance(root.value, dict)
    plain = {key: value.typed() if key in _VALUES else value.text() for key, (_, value) in root.value.items()}
    for index, rule in enumerate(root.children("rules")):
        if metadata := rule.child("metadata"):
            plain["rules"][index]["metadata"] = metadata.typed()
    # A field with nothing behind it is as good as absent, except `table` and `rules`, which are needed.
    return {key: value for key, value in plain.items() if value is not None}


def _sound_items(items: Any) -> dict[int, RuleModel]:
    """The items of a file with faults that have none themselves: what they say is checked all the same."""
    sound = {}
    for index, item in enumerate(items if isinstance(items, list) else ()):
        with suppress(ValidationError):
            sound[index] = RuleModel.model_validate(item)
    return sound


def _line(error: RuleError) -> tuple[int, int]:
    return (error.place.line or 0, error.place.column or 0) if error.place else (0, 0)


def _columns(root: Node, errors: list[RuleError]) -> dict[str, ColumnType]:
    """The types under `columns:`."""
    node = root.child("columns")
    columns: dict[str, ColumnType] = {}
    for name, (_, spelling) in (node.value if node is not None and isinstance(node.value, dict) else {}).items():
        if not isinstance(spelling.value, str):
            continue
        if node is not None and is_reserved(name):
            errors.append(RuleError(f"a column cannot be named {name}", place=node.place_of(name), hint=RENAME))
        try:
            columns[name] = type_of_name(spelling.value)
        except TypeMismatchError as error:
            error.place = spelling.place()
            errors.append(error)
    return columns


def _key(model: FileModel, root: Node) -> tuple[str, ...]:
    """The key, beside the table or inside it."""
    inner = None if isinstance(model.table, str) else model.table.key
    node = root.child("key")
    if inner is not None and model.key is not None and node is not None:
        raise RuleError("the key is given twice", place=node.place(), hint="keep it here or under `table:`")
    key = model.key if model.key is not None else inner
    columns = () if key is None else (key,) if isinstance(key, str) else tuple(key)
    if len(set(columns)) != len(columns):
        raise RuleError("the key names a column twice", place=(node or root).place())
    for name in columns:
        if is_reserved(name):
            raise RuleError(f"a column cannot be named {name}", place=(node or root).place(), hint=RENAME)
    return columns

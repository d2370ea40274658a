"""`weever convert`: rules from one notation to another. Reads a rule file or a listing with one rule a line."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weever_stream.cli.output import opened
from weever_stream.rules import NOTATIONS, RuleFile, read_rules, write_rule, write_sql

if TYPE_CHECKING:
    from weever_stream.rules import Notation, Rule

__all__ = ["To", "convert"]

To = Enum("To", [(name, name) for name in NOTATIONS], type=str)  # type: ignore[misc]
"""The notations that rules can be written in."""


def convert(
    file: Annotated[Path, typer.Argument(help="A rule file, or a .txt or .dc file with one rule a line.")],
    to: Annotated[To, typer.Option("--to", help="The notation to write.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write. By default the terminal.")
    ] = None,
) -> None:
    """Write the rules of a file in another notation.

    `weever` gives a rule file in YAML, `sql` a query for each rule, and the others one rule a line.
    """
    text = _converted(read_rules(file), to.value)
    if output is None:
        typer.echo(text, nl=False)
        return
    with opened(output) as out:
        out.write(text.encode())


def _converted(rules: RuleFile, to: Notation) -> str:
    if to == "weever":
        return _rule_file(rules)
    if to == "sql":
        key = rules.key or ("key",)
        queries = (f"-- {rule.name}\n{write_sql(rule, table=rules.table, key=key)};\n" for rule in rules.rules)
        return "\n".join(queries)
    return "".join(f"{write_rule(rule, to, types=rules.columns)}\n" for rule in rules.rules)


def _rule_file(rules: RuleFile) -> str:
    """The table and its rules as a rule file, every rule as a `deny`."""
    import yaml

    content: dict[str, Any] = {"table": rules.table}
    if rules.key:
        content["key"] = rules.key[0] if len(rules.key) == 1 else list(rules.key)
    if rules.columns:
        content["columns"] = {name: str(type_) for name, type_ in rules.columns.items()}
    content["rules"] = [_item(rule) for rule in rules.rules]
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=1_000_000)


def _item(rule: Rule) -> dict[str, Any]:
    item: dict[str, Any] = {"name": rule.name, "deny": write_rule(rule), "severity": rule.severity}
    optional = {"description": rule.description, "owner": rule.owner, "metadata": dict(rule.metadata)}
    return item | {name: value for name, value in optional.items() if value}

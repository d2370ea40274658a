"""`weever convert`: rules from one notation to another, and into a data contract or out of one.

Reads a rule file, a listing with one rule a line, or a contract of the Open Data Contract Standard.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weever_stream.cli.contract import TableOption, tell_skipped
from weever_stream.cli.output import opened
from weever_stream.errors import RuleError
from weever_stream.rules import NOTATIONS, RuleFile, read_rules, write_rule, write_sql

if TYPE_CHECKING:
    from weever_stream.rules import Notation, Rule

__all__ = ["From", "To", "convert"]

To = Enum("To", [(name, name) for name in (*NOTATIONS, "odcs")], type=str)  # type: ignore[misc]
"""The notations that rules can be written in."""


class From(str, Enum):
    """What a file can be told to be."""

    weever = "weever"
    odcs = "odcs"


def convert(
    file: Annotated[
        Path, typer.Argument(help="A rule file, a data contract, or a .txt or .dc file with one rule a line.")
    ],
    to: Annotated[To, typer.Option("--to", help="The notation to write.")],
    from_: Annotated[
        From | None, typer.Option("--from", help="What the file must be. By default it is told from the file.")
    ] = None,
    table: TableOption = None,
    into: Annotated[
        Path | None,
        typer.Option("--into", help="With --to odcs: the contract that gets the rules. Its other lines stay."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file to write. By default the terminal, or that of --into."),
    ] = None,
) -> None:
    """Convert rules to another notation.

    `weever` gives a rule file in YAML, `odcs` a data contract, `sql` a query for each rule, and the others one rule a
    line.
    """
    if into is not None and to.value != "odcs":
        raise RuleError("--into is for contracts", hint="weever convert rules.yaml --to odcs --into contract.yaml")
    # With --into the contract's table is chosen by the option, or is called as that of the rules.
    rules = read_rules(file, table=None if into is not None else table)
    _refuse_other(file, rules, from_)
    tell_skipped(rules)
    text = _updated(into, rules, table) if into is not None else _converted(rules, to.value)
    target = output if output is not None else into
    if target is None:
        typer.echo(text, nl=False)
        return
    with opened(target) as out:
        out.write(text.encode())


def _refuse_other(file: Path, rules: RuleFile, wanted: From | None) -> None:
    if wanted is not None and (wanted is From.odcs) != rules.contract:
        found = "a data contract" if rules.contract else "a rule file"
        raise RuleError(f"{file} is {found}", hint="leave --from out: what a file is, it says itself")


def _updated(contract: Path, rules: RuleFile, table: str | None) -> str:
    from weever_stream.rules.file import content_of
    from weever_stream.rules.nodes import read_document, read_nodes
    from weever_stream.rules.odcs_update import update_contract

    content = content_of(contract)
    root = read_nodes(read_document(content, str(contract)))
    several = root is not None and len(root.children("schema")) > 1
    return update_contract(content, rules, path=str(contract), table=table or (rules.table if several else None))


def _converted(rules: RuleFile, to: Notation | str) -> str:
    if to == "weever":
        return _rule_file(rules)
    if to == "odcs":
        from weever_stream.rules.odcs_writing import write_contract

        return write_contract(rules)
    if to == "sql":
        key = rules.key or ("key",)
        queries = (f"-- {rule.name}\n{write_sql(rule, table=rules.table, key=key)};\n" for rule in rules.rules)
        return "\n".join(queries)
    return "".join(f"{write_rule(rule, to, types=rules.columns)}\n" for rule in rules.rules)  # type: ignore[arg-type]


def _rule_file(rules: RuleFile) -> str:
    """The table and its rules as a rule file, every rule as a `deny`."""
    from weever_stream.rules.yamltext import dump

    content: dict[str, Any] = {"table": rules.table}
    if rules.key:
        content["key"] = rules.key[0] if len(rules.key) == 1 else list(rules.key)
    if rules.columns:
        content["columns"] = {name: str(type_) for name, type_ in rules.columns.items()}
    content["rules"] = [_item(rule) for rule in rules.rules]
    return dump(content)


def _item(rule: Rule) -> dict[str, Any]:
    item: dict[str, Any] = {"name": rule.name, "deny": write_rule(rule), "severity": rule.severity}
    optional = {
        "description": rule.description,
        "owner": rule.owner,
        "metadata": dict(rule.metadata),
        "alerts": dict(rule.alerts),
        "spread": rule.spread if rule.spread > 1 else None,
    }
    return item | {name: value for name, value in optional.items() if value}

"""What verbs that read rules do when the file is a data contract: choose its table, and tell what was skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from weever_stream.rules import RuleFile

__all__ = ["TableOption", "tell_skipped"]

TableOption = Annotated[
    str | None, typer.Option("--table", help="Of a data contract with several tables: the one that is meant.")
]


def tell_skipped(rules: RuleFile) -> None:
    """Says on stderr how many checks of a contract became no rules, and of each which and why."""
    from weever_stream.drawing import escaped

    if not rules.skipped:
        return
    count = len(rules.skipped)
    typer.echo(f"{count} check{'s' * (count != 1)} of the contract skipped:", err=True)
    for one in rules.skipped:
        typer.echo(f"  {escaped(str(one))}", err=True)

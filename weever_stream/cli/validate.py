"""`weever validate`: checks a rule file, and shows how each rule was understood. Needs no data.

Prints every error it finds, not only the first. With `--against` the columns and their types are checked too; so they
are for a job file whose source is a Delta table, and with them what else would keep the job from starting.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weever_stream.cli.contract import TableOption
from weever_stream.cli.exit_codes import ExitCode
from weever_stream.cli.output import Format
from weever_stream.errors import RuleError, RuleErrors, WeeverError
from weever_stream.rules import RuleFile, read_rules, write_rule

if TYPE_CHECKING:
    from weever_stream.rules import Rule

__all__ = ["validate"]


def validate(
    file: Annotated[Path | None, typer.Argument(help="The rule file.", show_default=False)] = None,
    against: Annotated[
        str | None, typer.Option("--against", metavar="DATA", help="Check columns and types against this data.")
    ] = None,
    table: TableOption = None,
    form: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.text,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of rule files and stop.")] = False,
) -> None:
    """Check a rule file without reading data.

    Exits with 0 where all is well and with 3 where something is wrong; every error is printed with its place.
    """
    if schema:
        if file is not None or against is not None:
            raise WeeverError("--schema prints the schema of all rule files: it takes no file and no --against")
        from weever_stream.rules.filemodel import json_schema

        typer.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))
        return
    if file is None:
        raise WeeverError("the rule file is missing", hint="weever validate rules.yaml")
    if form is Format.text:
        _print_rules(_checked(file, against, table))
        return
    try:
        outcome = _outcome(_checked(file, against, table))
    except WeeverError as error:
        typer.echo(json.dumps(_failure(file, error), indent=2, ensure_ascii=False))
        raise typer.Exit(ExitCode.COULD_NOT_RUN) from None
    typer.echo(json.dumps(outcome, indent=2, ensure_ascii=False))


def _checked(file: Path, against: str | None, table: str | None) -> RuleFile:
    rules = read_rules(file, table=table)
    if rules.alerts or any(rule.alerts for rule in rules.rules):
        _check_alerts(rules)
    if against is not None:
        from weever_stream.check.readers import read_schema
        from weever_stream.rules import schema_of

        rules.bind(schema_of(read_schema(against)))
    elif rules.source is not None and rules.state is not None:
        _check_source(rules)
    return rules


def _check_alerts(rules: RuleFile) -> None:
    """Raises every error of `alerts`, also of addresses that may not be used."""
    from weever_stream.alerts.targets import TargetError, check_target
    from weever_stream.job.job import check_alerts

    node, errors = rules.node("alerts"), []
    for number, target in enumerate(check_alerts(rules)):
        try:
            check_target(target)
        except TargetError as error:
            at = node.child(number) if node is not None else None
            errors.append(RuleError(error.message, place=at.place() if at is not None else None, hint=error.hint))
    RuleErrors.raise_all(errors)


def _check_source(rules: RuleFile) -> None:
    """Raises what would keep the job of a file from starting. References may be there only where the job runs."""
    from weever_stream.job.job import job_of
    from weever_stream.stream.preflight import check_job

    try:
        resolved = rules.resolve(os.environ)
    except RuleError as error:
        _note(f"the source was not checked: {error.message}")
        return
    found = check_job(job_of(resolved))
    for refusal in found.refusals:
        raise refusal
    refused = (f"a start is refused without --take-over: {error.message}" for error in found.not_ours)
    for line in (*found.warnings, *refused, *(f"not checked: {line}" for line in found.unchecked)):
        _note(line)


def _note(text: str) -> None:
    """A line on standard error, where it is in nobody's way."""
    typer.echo(f"note: {text}", err=True)


def _kind(rule: Rule) -> str:
    return "one row" if rule.one_row else "pairs" if rule.symmetric else "ordered pairs"


def _print_rules(rules: RuleFile) -> None:
    from rich.text import Text

    from weever_stream.cli.tables import open_console, print_table
    from weever_stream.drawing import escaped

    console = open_console()
    rows = [(rule.name, rule.severity, _kind(rule), write_rule(rule)) for rule in rules.rules]
    print_table(console, ("rule", "severity", "reports", "denies"), [[escaped(cell) for cell in row] for row in rows])
    for note in rules.notes:
        console.print(Text(escaped(f"note: {note}")))
    for one in rules.skipped:
        console.print(Text(escaped(str(one))))
    count = len(rules.rules)
    console.print(
        Text(
            escaped(
                f"{rules.path}: {count} rule{'s' * (count != 1)} of table {rules.table}, all valid{_skipped(rules)}"
            )
        )
    )


def _skipped(rules: RuleFile) -> str:
    count = len(rules.skipped)
    return f"; {count} check{'s' * (count != 1)} of the contract skipped" if rules.contract else ""


def _outcome(rules: RuleFile) -> dict[str, Any]:
    return {
        "version": 1,
        "file": rules.path,
        "valid": True,
        "table": rules.table,
        "key": list(rules.key),
        "rules": [
            {
                "name": rule.name,
                "severity": rule.severity,
                "deny": write_rule(rule),
                "reports": _kind(rule),
                "fingerprint": rule.fingerprint,
                "columns": list(rule.columns),
            }
            for rule in rules.rules
        ],
        "notes": list(rules.notes),
        "skipped": [
            {"check": one.check, "reason": one.reason, "line": one.place.line, "column": one.place.column}
            for one in rules.skipped
        ],
        "errors": [],
    }


def _failure(file: Path, error: WeeverError) -> dict[str, Any]:
    errors = error.errors if isinstance(error, RuleErrors) else (error,)
    return {"version": 1, "file": str(file), "valid": False, "errors": [_described(one) for one in errors]}


def _described(error: WeeverError) -> dict[str, Any]:
    place = error.place
    return {
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
        "rule": place.rule if place else None,
        "line": place.line if place else None,
        "column": place.column if place else None,
    }

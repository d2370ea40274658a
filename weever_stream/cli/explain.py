"""`weever explain`: how rules are kept and routed, and how many pairs they may find. Reads data only if it is given."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import pyarrow as pa

    from weever_stream.detect.plan import Family, Plan, Side
    from weever_stream.rules import ColumnType, RuleFile

__all__ = ["explain"]

_SAMPLE = 20_000
"""Rows that the estimate looks at."""


def explain(
    file: Annotated[Path, typer.Argument(help="The rule file.", show_default=False)],
    data: Annotated[
        list[str] | None, typer.Argument(help="Data to take types and an estimate from. Default: no data is read.")
    ] = None,
) -> None:
    """Show how rules are indexed and routed, and how selective they are."""
    from weever_stream.detect.plan import plan
    from weever_stream.drawing import escaped
    from weever_stream.errors import RuleError
    from weever_stream.rules import ColumnType, bind_all, read_rules

    rules = read_rules(file)
    table = None
    if data:
        from weever_stream.check.engine import read_data

        table, schema = read_data(rules, data)
        bound = rules.bind(schema)
    else:
        guessed = _guessed_types(rules)
        try:
            bound = bind_all(rules.rules, guessed)
        except RuleError:
            # The guess may be wrong: what is impossible in one type may be possible in another.
            bound = bind_all(rules.rules, {**dict.fromkeys(guessed, ColumnType("null")), **rules.columns})
    for line in [*_described(rules, plan(bound)), *_estimated(rules, table)]:
        typer.echo(escaped(line))


def _guessed_types(rules: RuleFile) -> dict[str, ColumnType | str]:
    """Types where no data tells them: as `columns:` says, else as the constants that a column meets, else text.

    Columns that are compared with each other get one type, so that every valid rule can be explained.
    """
    from weever_stream.rules import ColumnType
    from weever_stream.rules.literals import type_of_literal
    from weever_stream.rules.model import Column, Constant

    together: dict[str, set[str]] = {}
    known: dict[str, ColumnType] = dict(rules.columns)
    for rule in rules.rules:
        for predicate in rule.predicates:
            group = {side.name for side in (predicate.left, predicate.right) if isinstance(side, Column)}
            if isinstance(predicate.right, Constant):
                known.setdefault(next(iter(group)), type_of_literal(predicate.right.value))
            merged = set().union(group, *(together.get(name, set()) for name in group))
            together.update(dict.fromkeys(merged, merged))
    types: dict[str, ColumnType | str] = {}
    for name, group in together.items():
        types[name] = next((known[other] for other in sorted(group) if other in known), ColumnType("string"))
    return types


def _described(rules: RuleFile, plan: Plan) -> list[str]:
    from weever_stream.rules import write_rule

    key = ", ".join(rules.key) or "none: rows are numbered"
    lines = [f"table {rules.table}, key {key}", ""]
    for number, family in enumerate(plan.families, 1):
        same = " and ".join(f"t.{ours} = s.{theirs}" for ours, theirs in family.equalities)
        lines.append(f"family {number}: {same or 'no equality'}")
        lines += [
            f"  rule     {plan.rules[rule].rule.name}: {write_rule(plan.rules[rule].rule)}" for rule in family.rules
        ]
        for side in dict.fromkeys((family.left, family.right)):
            lines.append(f"  side     {_side(plan, plan.sides[side])}")
        lines += [f"  routing  {_routing(family)}", ""]
    if plan.one_row:
        lines.append("rules on one row")
        lines += [
            f"  rule     {plan.rules[rule].rule.name}: {write_rule(plan.rules[rule].rule)}" for rule, _ in plan.one_row
        ]
        lines += ["  routing  by key; only rows in violation are held", ""]
    return lines


def _side(plan: Plan, side: Side) -> str:
    columns = ", ".join(
        f"{plan.codes[code].column} ({plan.codes[code].coding.domain}, {plan.codes[code].coding.form})"
        for code in side.codes
    )
    key = ", ".join(plan.codes[code].column for code in side.equals)
    kept = "stored" if side.stored else "only asks, not stored"
    filters = f", {len(side.gates)} gate{'s' * (len(side.gates) != 1)}" if side.gates else ""
    return f"{side.role}, {kept}; hash index on {key or 'nothing'}; tree on {columns or 'nothing'}{filters}"


def _routing(family: Family) -> str:
    if not family.equalities:
        return "a grid of shards: left rows go to one row of it, right rows to one column"
    ours, theirs = (", ".join(columns) for columns in zip(*family.equalities, strict=True))
    if family.left == family.right:
        return f"one shard a row, by hash of {ours}"
    return f"two shards a row, by hash of {ours} as t and of {theirs} as s"


def _estimated(rules: RuleFile, table: pa.Table | None) -> list[str]:
    """How many violations a sample makes one expect."""
    if table is None:
        return ["types and selectivity: not known without data; name it after the rule file"]
    from weever_stream.check import check

    rows = table.num_rows
    step = max(1, -(-rows // _SAMPLE))
    sample = table.take(list(range(0, rows, step))) if step > 1 else table
    report = check(rules, sample, mode="count", key=())
    lines = [f"selectivity, from {report.rows:,} of {rows:,} rows:"]
    for result in report.results:
        power = 1 if result.rule.one_row else 2
        all_pairs = rows if power == 1 else rows * max(1, rows - 1) // (2 if result.rule.symmetric else 1)
        expected = round(result.violations * step**power)
        share = expected / max(1, all_pairs)
        lines.append(
            f"  {result.rule.name}: about {expected:,} violations, {share:.2g} of all {('rows', 'pairs')[power - 1]}"
        )
    return lines

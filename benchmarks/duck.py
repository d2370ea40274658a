"""The same question put to DuckDB: a script of its own, run as a command, so that both sides pay for a whole process.

    python benchmarks/duck.py '{"rule": …}'

It imports nothing but DuckDB. Counting: `count(*)` of the self-join, in the form that DuckDB answers fastest: for
symmetric rules with `!=` the ordered pairs without a comparison of ids (whoever asks halves them), for other symmetric
rules with `t.id < s.id`. Listing: the join, symmetric pairs once, copied to CSV; either the `same` content as weever
writes (rule, severity, a SHA-256 id of 32 digits, both ids, both rows' compared columns as JSON objects), or `plain`
columns (both ids, both rows' columns). With `loop` there is one query for each value of that column: where a rule has
one equality and two order predicates, DuckDB takes its fast IEJoin only without the equality.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import duckdb

__all__ = ["main", "query"]


def query(ask: dict[str, Any]) -> str:
    """The SQL of one question; `{value}` stands for the value of the loop's column."""
    predicates = [tuple(one) for one in ask["predicates"]]
    symmetric, listing = ask["symmetric"], ask["content"] is not None
    on = [f"t.{left} {op} s.{right}" for left, op, right in predicates if not (op == "=" and left == ask["loop"])]
    unequal = any(op == "!=" for _, op, _ in predicates)
    if symmetric and (listing or not unequal):
        on.append("t.id < s.id")
    source = f"read_parquet('{ask['data']}')"
    if ask["loop"]:
        source = f"(select * from {source} where {ask['loop']} = {{value}})"
    selected = _selected(ask) if listing else "count(*)"
    return f"select {selected} from {source} t join {source} s on {' and '.join(on)}"


def _selected(ask: dict[str, Any]) -> str:
    if ask["content"] == "plain":
        columns = [f"{row}.{name} as {side}_{name}" for row, side in _SIDES for name in ("id", *ask["columns"])]
        return ", ".join(columns)
    digest = f"""sha256('["{ask["rule"]}","' || t.id || '","' || s.id || '"]')"""
    fields = {row: ", ".join(f"'{name}', {row}.{name}" for name in ask["columns"]) for row, _ in _SIDES}
    values = [f"json_object({fields[row]}) as {side}_values" for row, side in _SIDES]
    keys = [f"{row}.id as {side}_key" for row, side in _SIDES]
    return f"'{ask['rule']}' as rule, 'error' as severity, {digest}[:32] as id, {', '.join([*keys, *values])}"


_SIDES = (("t", "left"), ("s", "right"))


def main(ask: dict[str, Any]) -> None:
    """Answers on stdout with the number of rows counted or copied."""
    connection = duckdb.connect()
    connection.execute(f"set threads = {ask['threads']}")
    sql = query(ask)
    values: list[Any] = [None]
    if ask["loop"]:
        distinct = f"select distinct {ask['loop']} from read_parquet('{ask['data']}') order by 1"
        values = [row[0] for row in connection.execute(distinct).fetchall()]
    total = 0
    for value in values:
        one = sql.format(value=value) if ask["loop"] else sql
        if ask["content"] is not None:
            path = ask["output"] if value is None else f"{ask['output']}.{value}"
            one = f"copy ({one}) to '{path}' (format csv, header)"
        total += connection.execute(one).fetchall()[0][0]
    print(total)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

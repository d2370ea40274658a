"""What a check found, as data: counts by rule, exit code, and the violations, rendered only when asked for.

`write_json` and `write_csv` stream: the violations pass through in pieces of bounded size, however many there are. The
JSON form is `{"version": 1, "table", "rows", "rules": [{"name", "severity", "violations", "rows_involved", "seconds"}],
"violations": [{"rule", "id", "left", "right"}]}`; left and right hold the key and the columns that the rule reads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Literal, TypeAlias

import pyarrow as pa

from weever_stream.detect.texts import contents, ids_of, side_by_side, written

if TYPE_CHECKING:
    from weever_stream.check.listing import Pairs
    from weever_stream.check.rownames import RowNames
    from weever_stream.check.rowtexts import RowTexts
    from weever_stream.index.arrays import Rows
    from weever_stream.rules import Rule

__all__ = ["VIOLATION_SCHEMA", "Mode", "Report", "RuleResult", "Violations", "exit_code_of", "write_csv", "write_json"]

Mode: TypeAlias = Literal["list", "count", "first"]
VIOLATION_SCHEMA = pa.schema(
    [(name, pa.large_string()) for name in (
        "rule", "severity", "id", "left_key", "right_key", "left_values", "right_values",
    )]
)  # fmt: skip
_ROWS_AT_ONCE = 1 << 17


@dataclass(frozen=True)
class RuleResult:
    """One rule's outcome. In mode `first` violations is 1 where there is any, and rows are not counted."""

    rule: Rule
    violations: int
    rows_involved: int | None
    seconds: float

    def as_json(self) -> dict[str, object]:
        """The object that stands for it under `rules`."""
        return {
            "name": self.rule.name,
            "severity": self.rule.severity,
            "violations": self.violations,
            "rows_involved": self.rows_involved,
            "seconds": round(self.seconds, 6),
        }


@dataclass(frozen=True)
class Violations:
    """Some violations of one rule, and the rows they are made of."""

    rule: Rule
    pairs: Pairs
    names: RowNames
    texts: RowTexts

    def sides(self) -> tuple[pa.Table, pa.Table | None]:
        """Left and right rows: the columns that name them and the columns that the rule reads."""
        left = self.names.rows(self.pairs.left, self.rule.columns)
        return left, None if self.pairs.right is None else self.names.rows(self.pairs.right, self.rule.columns)

    def to_arrow(self) -> pa.Table:
        """A table with `VIOLATION_SCHEMA`."""
        n = len(self.pairs)
        columns = [
            pa.repeat(pa.scalar(self.rule.name, pa.large_string()), n),
            pa.repeat(pa.scalar(self.rule.severity, pa.large_string()), n),
            self.ids(),
            *self._both(self.texts.keys),
            *self._both(self.texts.values),
        ]
        return pa.Table.from_arrays(columns, schema=VIOLATION_SCHEMA)

    def ids(self) -> pa.Array:
        """The stable id of each violation (see `detect.identity`)."""
        return ids_of(self.rule.name, *self._both(self.texts.quoted_keys))

    def json_lines(self) -> pa.Array:
        """Each violation as a JSON object on a line of its own, after a comma."""
        left, right = self._both(self.texts.objects)
        head = f',\n{{"rule":{written(self.rule.name)},"id":"'
        return side_by_side(head, self.ids(), '","left":', left, ',"right":', right.fill_null("null"), "}")

    def csv_lines(self) -> pa.Array:
        """Each violation as a line of CSV with the columns of `VIOLATION_SCHEMA`."""
        pieces: list[pa.Array | str] = [f"{_quoted(self.rule.name)},{self.rule.severity},", self.ids()]
        for texts in (*self._both(self.texts.csv_keys), *self._both(self.texts.csv_values)):
            pieces += [",", texts.fill_null("")]
        return side_by_side(*pieces, "\n")

    def _both(self, texts: Callable[[Rows], pa.Array]) -> tuple[pa.Array, pa.Array]:
        """Texts of the left and of the right rows; nulls where there are none."""
        if self.pairs.right is None:
            return texts(self.pairs.left), pa.nulls(len(self.pairs), pa.large_string())
        return texts(self.pairs.left), texts(self.pairs.right)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def exit_code_of(violated: Collection[str]) -> int:
    """The exit code for violated rules of these severities: 1 with error or critical, 2 with only warning or info."""
    return 0 if not violated else 1 if {"error", "critical"} & set(violated) else 2


@dataclass(frozen=True)
class Report:
    """The outcome of a check. Iterate `violations()` to list them; each call lists anew."""

    table: str
    rows: int
    mode: Mode
    results: tuple[RuleResult, ...]
    limit: int | None = None
    """How many violations are listed per rule; None lists all."""
    pieces: Callable[[], Iterator[Violations]] = field(default=lambda: iter(()), repr=False)

    @property
    def exit_code(self) -> int:
        """0 clean, 1 violations of severity error or critical, 2 only of warning or info."""
        return exit_code_of({result.rule.severity for result in self.results if result.violations})

    def violations(self) -> Iterator[Violations]:
        """The listed violations, rule by rule, in pieces that fit in memory."""
        for piece in self.pieces():
            for some in piece.pairs.cut(_ROWS_AT_ONCE):
                yield Violations(piece.rule, some, piece.names, piece.texts)

    def to_arrow(self) -> pa.Table:
        """All listed violations in one table."""
        tables = [piece.to_arrow() for piece in self.violations()]
        return pa.concat_tables(tables) if tables else VIOLATION_SCHEMA.empty_table()


def write_json(report: Report, out: IO[bytes]) -> None:
    """The report as one JSON document, a violation a line."""
    rules = ",\n".join(written(result.as_json()) for result in report.results)
    head = f'{{"version":1,"table":{written(report.table)},"rows":{report.rows},"rules":[\n{rules}\n],"violations":['
    out.write(head.encode("utf-8", "replace"))
    comma = 1
    for piece in report.violations():
        out.write(contents(piece.json_lines())[comma:])
        comma = 0
    out.write(b"\n]}\n")


def write_csv(report: Report, out: IO[bytes]) -> None:
    """The violations as CSV with a header; `left_values` and `right_values` are JSON objects."""
    out.write((",".join(VIOLATION_SCHEMA.names) + "\n").encode())
    for piece in report.violations():
        out.write(contents(piece.csv_lines()))

"""Writing: SQL that other engines accept, and what each notation makes of awkward rules."""

from __future__ import annotations

import duckdb
import pytest

from weever_stream.errors import RuleError
from weever_stream.rules import parse_rule, type_of_name, write_rule, write_sql


@pytest.mark.parametrize(
    ("text", "key", "sql"),
    [
        ("t.a = s.a", ["id"], "SELECT t.*, s.* FROM x t JOIN x s ON t.id < s.id AND t.a = s.a"),
        ("t.a < s.b", ["id"], "SELECT t.*, s.* FROM x t JOIN x s ON t.id <> s.id AND t.a < s.b"),
        ("t.a != s.a", ["i", "j"], "SELECT t.*, s.* FROM x t JOIN x s ON (t.i, t.j) < (s.i, s.j) AND t.a <> s.a"),
        ("t.a > 5 and t.b = true", ["id"], "SELECT t.* FROM x t WHERE t.a > 5 AND t.b = true"),
        (
            "t.\"order date\" = date '2024-01-31' and t.n = 'it''s \\'",
            ["id"],
            "SELECT t.* FROM x t WHERE t.n = 'it\\'s \\\\' AND t.`order date` = date '2024-01-31'",
        ),
        ("t.a = double 'NaN'", ["id"], "SELECT t.* FROM x t WHERE t.a = double('NaN')"),
    ],
)
def test_sql_is_the_self_join_that_finds_the_violations(text, key, sql):
    assert write_sql(parse_rule(text), table="x", key=key) == sql


PACKAGES = """(VALUES (0,'London','Cape Town',9700,8,100), (1,'Cape Town','Lima',9700,18,50), (2,'London','New Delhi',6600,30,25),
(3,'Cape Town','London',9700,45,200), (4,'New Delhi','London',6700,45,50)) p(package_code, origin, destination, distance, volume, postage)"""


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("t.package_code = s.package_code", []),
        ("t.origin = s.destination and t.destination = s.origin and t.distance != s.distance", [(2, 4)]),
        ("t.distance = s.distance and t.volume < s.volume and t.postage > s.postage", [(0, 1)]),
    ],
)
def test_the_self_join_of_the_packages_finds_the_papers_pairs(text, pairs):
    query = write_sql(parse_rule(text), table="packages", key=["package_code"]).replace(
        "t.*, s.*", "t.package_code, s.package_code"
    )
    with duckdb.connect() as database:
        database.execute(f"CREATE TABLE packages AS SELECT * FROM {PACKAGES}")
        assert database.execute(query).fetchall() == pairs


def test_a_listing_names_the_types_that_are_known():
    types = {"a": type_of_name("int"), "b": type_of_name("double")}
    rule = parse_rule("t.a < s.b and t.c = s.c")
    assert (
        write_rule(rule, "incdc", types=types) == "[DC: t0.c(String) == t1.c(String)  t0.a(Integer) < t1.b(Double)  ]"
    )


def test_an_unknown_notation_is_refused():
    with pytest.raises(RuleError, match="did you mean holoclean"):
        write_rule(parse_rule("t.a = s.a"), "holoclan")

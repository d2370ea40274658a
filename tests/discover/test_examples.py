"""The running examples of the papers on denial constraints: what holds is found or implied, what is broken is neither.

Small tables of parcels, employees, tax rates and tax records, whose answers were computed by a self-join. A rule is
implied where one that was found lies in its closure, one way round or the other.
"""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pytest

from weever_stream import parse_rule
from weever_stream.check import check
from weever_stream.discover.hydra import find_rules
from weever_stream.discover.logic import closures, exchange
from weever_stream.discover.predicates import Options, Space, space_of

PARCELS = """code,origin,destination,distance,volume,postage
0,London,Cape Town,9700,8,100
1,Cape Town,Lima,9700,18,50
2,London,New Delhi,6600,30,25
3,Cape Town,London,9700,45,200
4,New Delhi,London,6700,45,50
5,Mexico City,Monaco,9700,18,10
"""
STAFF = """id,dept,start,salary,boss
100,Sales,2012,3000,100
101,Research,2014,8000,102
102,Research,2014,6000,101
103,Research,2015,8000,101
"""
RATES = """ssn,zip,salary,rate,state
100,10108,3000,20,New York
101,53703,5000,15,Wisconsin
102,53703,6000,20,Wisconsin
103,53703,4000,22,Wisconsin
"""
RECORDS = """name,date,ssn,num,ms,ch,ph,st,zip,sal,rate,txa,stx,ctx
Sadam,20140410,719975883,1448,S,Y,6059466,CO,80612,32000,1.24,3000,400,2000
Duparc,20140224,303975883,1401,M,N,5872027,CO,80612,50000,1.42,1500,0,0
Hannen,20140413,701178073,1486,M,N,1638673,ND,58671,30000,1.21,3400,0,0
Beke,20130403,801350874,1386,M,Y,6192334,UT,84308,55000,2.04,1300,0,40
Sadam,20140329,719975883,1427,S,N,6059466,CO,80612,7500,1.21,0,50,0
Hannen,20130404,701178073,1386,S,Y,1638673,ND,58671,6500,0.24,900,0,1000
Motwani,20150324,970122634,1547,M,N,8484643,CO,80209,95000,2.85,1100,0,0
Uckun,20130322,435849162,1368,M,Y,5872027,UT,84308,40000,1.43,3300,0,0
Hannen,20140218,701178073,1478,S,N,1638673,ND,58671,33000,2.05,1400,40,40
Beke,20150213,801350874,1533,S,Y,6192334,UT,84308,32000,1.23,3200,0,1000
"""
AMOUNTS = "t.txa > s.txa and t.sal < s.sal and t.rate > s.rate"
ROUTES = "t.origin = s.destination and t.destination = s.origin and t.distance != s.distance"
PRICES = "t.distance = s.distance and t.volume < s.volume and t.postage > s.postage"
CASES = [
    (PARCELS, 5, "t.code = s.code", True),
    (PARCELS, 5, ROUTES, False),
    (PARCELS, 4, ROUTES, True),
    (PARCELS, 5, PRICES, False),
    (STAFF, 4, "t.id = s.boss and t.boss = s.id", False),
    (STAFF, 4, "t.dept = s.dept and t.start < s.start and t.salary < s.salary", False),
    (RATES, 4, "t.ssn = s.ssn", True),
    (RATES, 4, "t.zip = s.zip and t.state != s.state", True),
    (RATES, 4, "t.state = s.state and t.salary <= s.salary and t.rate > s.rate", False),
    (RATES, 4, "t.salary < s.rate", True),
    (RECORDS, 7, "t.ssn = s.ssn and t.name != s.name", True),
    (RECORDS, 7, "t.zip = s.zip and t.st != s.st", True),
    (RECORDS, 7, AMOUNTS, True),
    (RECORDS, 7, "t.ssn = s.ssn and t.date < s.date and t.num >= s.num", True),
    (RECORDS, 7, "t.stx = s.stx and t.stx > s.ctx and t.ms != s.ms", True),
    (RECORDS, 10, "t.ssn = s.ssn and t.name != s.name", True),
    (RECORDS, 10, "t.stx = s.stx and t.stx > s.ctx and t.ms != s.ms", True),
    (RECORDS, 10, AMOUNTS, False),
    (RECORDS, 10, AMOUNTS + " and t.st = s.st", True),
    (RECORDS, 10, AMOUNTS + " and t.date = s.date", True),
]


def read(text: str, rows: int) -> pa.Table:
    return csv.read_csv(io.BytesIO(text.encode())).slice(0, rows)


def found_or_implied(space: Space, rules: np.ndarray, deny: str) -> bool:
    marks = np.zeros((1, len(space.predicates)), np.bool_)
    for p in parse_rule(deny).predicates:
        marks[0, space.number[p.left, p.op, p.right]] = True
    closed, _ = closures(space, marks)
    both = np.concatenate([rules, exchange(space, rules)])
    return bool((~(both & ~closed[0]).any(1)).any())


@pytest.mark.parametrize(("text", "rows", "deny", "holds"), CASES)
def test_a_rule_of_the_examples_is_found_or_implied_if_it_holds(text: str, rows: int, deny: str, holds: bool) -> None:
    table = read(text, rows)
    assert (check([parse_rule(deny)], table, mode="count").results[0].violations == 0) == holds
    columns = tuple(parse_rule(deny).columns)
    # Salaries and rates share no value: only where that is not asked for do they meet.
    space = space_of(table.select(columns), Options(columns, shared=0 if "salary < s.rate" in deny else 0.3))
    outcome = find_rules(space)
    assert outcome.exact
    assert found_or_implied(space, outcome.rules, deny) == holds
    sampled = find_rules(space, scanned=-1, sample=3)
    assert found_or_implied(space, sampled.rules, deny) == holds


@pytest.mark.slow
def test_all_columns_of_the_tax_records_at_once() -> None:
    space = space_of(read(RECORDS, 7), Options())
    outcome = find_rules(space)
    assert outcome.exact
    for text, rows, deny, holds in CASES:
        if text is RECORDS and rows == 7:
            assert found_or_implied(space, outcome.rules, deny) == holds


def test_columns_meet_where_types_match_and_enough_values_are_shared() -> None:
    table = pa.table(
        {
            "a": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
            "three": pa.array([1, 2, 3, 90, 91, 92, 93, 94, 95, 96], pa.int32()),
            "two": [1, 2, 80, 81, 82, 83, 84, 85, 86, 87],
            "text": ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"],
            "float": [float(at) for at in range(1, 11)],
        }
    )

    def met(**options: float) -> set[tuple[str, str]]:
        comparisons = space_of(table, Options(**options)).comparisons
        return {(one.left.name, one.right.name) for one in comparisons if one.left.name < one.right.name}

    assert met() == {("a", "three")}
    assert met(shared=0.31) == set()
    assert met(shared=0.2) == {("a", "three"), ("a", "two"), ("three", "two")}
    assert met(cross=False) == set()


def test_order_of_text_and_predicates_on_one_row_come_on_request() -> None:
    table = pa.table({"a": ["x", "y", None], "b": ["x", "z", "y"]})
    operators = {(p.columns[0].name, p.op.symbol) for p in space_of(table, Options(cross=False)).predicates}
    assert operators == {(name, op) for name in "ab" for op in ("=", "!=")}
    ordered = space_of(table, Options(cross=False, order_text=True)).predicates
    assert {p.op.symbol for p in ordered} == {"=", "!=", "<", "<=", ">", ">="}
    plain, on_one_row = (space_of(table, Options(one_row=one)).predicates for one in (False, True))
    assert all(p.rows == {"t", "s"} for p in plain)
    assert {frozenset(p.rows) for p in on_one_row} == {frozenset("ts"), frozenset("t"), frozenset("s")}

"""The running examples of the papers, with the answers they give. Catches a misread of the semantics as a whole."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from weever_stream import Detector, parse_rule
from weever_stream.check import check


def rows(header: str, *lines: str) -> list[dict[str, Any]]:
    """A table written as text: columns by bars, whole numbers and decimals as numbers."""
    names = header.split()
    return [dict(zip(names, map(value, line.split("|")), strict=True)) for line in lines]


def value(cell: str) -> Any:
    cell = cell.strip()
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell


def pairs(found: Any) -> list[tuple[str, str]]:
    return sorted((violation.left_key, violation.right_key) for violation in found)


def listed(rule: str, table: list[dict[str, Any]], key: str) -> list[tuple[str, str]]:
    """The pairs of a rule as `check` lists them, which must be those of a detector."""
    parsed = parse_rule(rule, name="rule")
    detector = Detector([parsed], key=key)
    detector.insert(table)
    found = pairs(detector.violations())
    report = check([parsed], pa.Table.from_pylist(table), key=[key])
    assert report.results[0].violations == len(found)
    return found


PACKAGES = rows(
    "package_code origin destination distance volume postage",
    "0|London|Cape Town|9700|8|100",
    "1|Cape Town|Lima|9700|18|50",
    "2|London|New Delhi|6600|30|25",
    "3|Cape Town|London|9700|45|200",
    "4|New Delhi|London|6700|45|50",
)


def test_weevers_packages_under_an_insert_and_a_delete() -> None:
    detector = Detector(
        [
            parse_rule("t.package_code = s.package_code", name="phi1"),
            parse_rule(
                "t.origin = s.destination and t.destination = s.origin and t.distance != s.distance", name="phi2"
            ),
            parse_rule("t.distance = s.distance and t.volume < s.volume and t.postage > s.postage", name="phi3"),
        ],
        key="package_code",
    )
    deltas = detector.insert(PACKAGES)
    assert [(v.rule, v.left_key, v.right_key) for v in deltas] == [("phi2", "2", "4"), ("phi3", "0", "1")]
    [fifth] = rows("package_code origin destination distance volume postage", "5|Mexico City|Monaco|9700|18|10")
    assert [(v.rule, v.left_key, v.right_key) for v in detector.insert(fifth)] == [("phi3", "0", "5")]
    assert [(v.rule, v.change, v.left_key, v.right_key) for v in detector.delete(4)] == [("phi2", "removed", "2", "4")]
    assert [detector.count(rule) for rule in ("phi1", "phi2", "phi3")] == [0, 0, 2]


def test_facets_employees_supervise_each_other_but_nobody_pairs_with_himself() -> None:
    employees = rows(
        "id name dept startdate salary sid",
        "100|C. Gardner|Sales|2012|3000|100",
        "101|R. Geller|Research|2014|8000|102",
        "102|D. Brown|Research|2014|6000|101",
        "103|H. McCoy|Research|2015|8000|101",
    )
    assert listed("t.id = s.sid and t.sid = s.id", employees, "id") == [("101", "102")]
    later_and_richer = "t.dept = s.dept and t.startdate < s.startdate and t.salary < s.salary"
    assert listed(later_and_richer, employees, "id") == [("102", "103")]


def test_rapidashs_tax_rates() -> None:
    rates = rows(
        "ssn zip salary fedtaxrate state statecode",
        "100|10108|3000|20|New York|01",
        "101|53703|5000|15|Wisconsin|02",
        "102|53703|6000|20|Wisconsin|02",
        "103|53703|4000|22|Wisconsin|02",
    )
    assert listed("t.ssn = s.ssn", rates, "ssn") == []
    assert listed("t.zip = s.zip and t.state != s.state", rates, "ssn") == []
    falling = "t.state = s.state and t.salary <= s.salary and t.fedtaxrate > s.fedtaxrate"
    assert listed(falling, rates, "ssn") == [("103", "101"), ("103", "102")]
    assert listed("t.salary < s.fedtaxrate", rates, "ssn") == []


def test_rapidashs_intervals_must_not_overlap() -> None:
    orders = rows("id shipdate receiptdate", "1|10|20", "2|15|30", "3|21|25", "4|40|50")
    overlap = "t.receiptdate >= s.shipdate and t.shipdate <= s.receiptdate"
    assert listed(overlap, orders, "id") == [("1", "2"), ("2", "3")]


TAX = "tid name date ssn num ms ch ph st zip sal rate txa stx ctx"
TAX_ROWS = rows(
    TAX,
    "0|Sadam|20140410|719975883|1448|S|Y|6059466|CO|80612|32000|1.24|3000|400|2000",
    "1|Duparc|20140224|303975883|1401|M|N|5872027|CO|80612|50000|1.42|1500|0|0",
    "2|Hannen|20140413|701178073|1486|M|N|1638673|ND|58671|30000|1.21|3400|0|0",
    "3|Beke|20130403|801350874|1386|M|Y|6192334|UT|84308|55000|2.04|1300|0|40",
    "4|Sadam|20140329|719975883|1427|S|N|6059466|CO|80612|7500|1.21|0|50|0",
    "5|Hannen|20130404|701178073|1386|S|Y|1638673|ND|58671|6500|0.24|900|0|1000",
    "6|Motwani|20150324|970122634|1547|M|N|8484643|CO|80209|95000|2.85|1100|0|0",
)
LATER_TAX_ROWS = rows(
    TAX,
    "7|Uckun|20130322|435849162|1368|M|Y|5872027|UT|84308|40000|1.43|3300|0|0",
    "8|Hannen|20140218|701178073|1478|S|N|1638673|ND|58671|33000|2.05|1400|40|40",
    "9|Beke|20150213|801350874|1533|S|Y|6192334|UT|84308|32000|1.23|3200|0|1000",
)
TAX_RULES = {
    "one_name": "t.ssn = s.ssn and t.name != s.name",
    "one_state": "t.zip = s.zip and t.st != s.st",
    "phi3": "t.txa > s.txa and t.sal < s.sal and t.rate > s.rate",
    "numbers_rise": "t.ssn = s.ssn and t.date < s.date and t.num >= s.num",
    "single_tax": "t.stx = s.stx and t.stx > s.ctx and t.ms != s.ms",
    "phi3_in_state": "t.txa > s.txa and t.sal < s.sal and t.rate > s.rate and t.st = s.st",
    "phi3_on_a_day": "t.txa > s.txa and t.sal < s.sal and t.rate > s.rate and t.date = s.date",
}


def test_incdcs_tax_records_break_one_rule_when_rows_arrive() -> None:
    detector = Detector([parse_rule(text, name=name) for name, text in TAX_RULES.items()], key="tid")
    assert len(detector.insert(TAX_ROWS)) == 0
    deltas = detector.insert(LATER_TAX_ROWS)
    assert {v.rule for v in deltas} == {"phi3"}
    assert pairs(deltas) == [("7", "1"), ("8", "3")]
    assert pairs(detector.delete([7, 8, 9]).removed) == [("7", "1"), ("8", "3")]

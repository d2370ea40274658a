"""What a person sees of a discovery: words, families, the ranking of the first screen, the picture and the report.

Catches a value or name that becomes markup, a report that loads something or differs from run to run, boxes that
overlap, a sentence that says what the rule does not, and a first screen full of what follows from its first lines.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from itertools import combinations, pairwise, permutations
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weever_stream import parse_rule
from weever_stream.cli import run
from weever_stream.discover import Discovery, discover
from weever_stream.discover.evidence import Evidence
from weever_stream.discover.layout import layered
from weever_stream.discover.picture import draw
from weever_stream.discover.predicates import Options, Space, space_of
from weever_stream.discover.ranking import choose, rank
from weever_stream.discover.sampling import sample_random
from weever_stream.discover.telling import entries
from weever_stream.discover.words import families, name_of, understand

SCRIPT = "<script>alert('x')</script>"
QUOTES = "\"><img src=x onerror=alert(1)> 'q' &amp;"
TURNED = "pay\u202egpj\u0007\u001b[31m"
ARABIC = "مدينة"
LONG = "x" * 5000
HOSTILE = (SCRIPT, QUOTES, TURNED, ARABIC, LONG)


def hostile() -> pa.Table:
    """SCRIPT determines QUOTES but for one row; names and values are such that would be markup."""
    chance = np.random.default_rng(5)
    zips = chance.integers(0, 12, 120)
    cities = [f"</td><script>steal({zip_ // 3})</script>" for zip_ in zips]
    cities[7] = LONG + "<b>one</b>"
    turned = chance.integers(0, 50, 120)
    columns = {
        SCRIPT: zips,
        QUOTES: cities,
        TURNED: turned,
        ARABIC: turned // 5,
        LONG: [f"{'y' * 100}{at % 40}\u0000" for at in range(120)],
    }
    return pa.table(columns)


@pytest.fixture(scope="module")
def dirty() -> Discovery:
    return discover(hostile(), error=0.01, max_predicates=2)


@pytest.fixture(scope="module")
def pay() -> pa.Table:
    chance = np.random.default_rng(1)
    rows = 1500
    zips = chance.permutation(rows) // 2
    state = chance.integers(0, 40, 800)[zips]
    salary = chance.integers(0, 4000, rows)
    return pa.table(
        {
            "id": np.arange(rows) * 7 % 1501,
            "zip": zips,
            "city": chance.permutation(800)[zips // 2],
            "state": state,
            "salary": salary,
            "rate": salary // 40 + state % 3,
            "noise": chance.integers(0, 9, rows),
        }
    )


@pytest.fixture(scope="module")
def clean(pay: pa.Table) -> Discovery:
    return discover(pay, cross=False, max_predicates=3)


class Page(HTMLParser):
    """Tags with their attributes, and what stands between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: Counter[str] = Counter()
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        self.open[tag] -= 1

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


SAID = {
    "t.id = s.id": "id is unique",
    "t.zip = s.zip and t.city != s.city": "zip determines city",
    "t.state = s.state and t.salary < s.salary and t.rate > s.rate": "salary and rate rise together within a state",
    "t.areacode = s.areacode and t.phone = s.phone": "phone is unique within an areacode",
    "t.one != s.one": "one is the same in all rows",
    "t.a = s.a and t.b != s.b and t.c != s.c": "rows with the same a agree in b or c",
    "t.a <= s.a and t.b > s.b": "a determines b, and both rise together",
    "t.a <= s.a and t.b >= s.b": "a and b rise strictly together",
    "t.a < s.a and t.b < s.b": "b falls as a rises",
    "t.a <= s.a and t.b < s.b": "a determines b, which falls as a rises",
    "t.a <= s.a and t.b <= s.b": "b falls strictly as a rises",
    "t.a = s.b": "no a is the b of another row",
    "t.a != s.a and t.b != s.b": "no two rows have a different a and a different b",
    "t.a < s.a and t.b != s.b and t.c = s.c": (
        "no row has a smaller a, a different b and the same c, compared with another row"
    ),
}


@pytest.mark.parametrize(("deny", "words"), SAID.items())
def test_rules_in_words(deny: str, words: str) -> None:
    sizes = {"phone": 9, "areacode": 2}
    predicates = sorted(parse_rule(deny).predicates, key=lambda p: deny.index(f"t.{p.columns[0].name} "))
    assert understand(predicates, lambda name: sizes.get(name, 0)).words() == words


@pytest.mark.parametrize(
    ("deny", "means"),
    {
        "t.a <= s.a and t.b < s.b": lambda t, s: (t[0] != s[0] or t[1] == s[1]) and (t[0] >= s[0] or t[1] >= s[1]),
        "t.a <= s.a and t.b <= s.b": lambda t, s: t[0] != s[0] and (t[0] > s[0]) == (t[1] < s[1]) and t[1] != s[1],
        "t.a < s.a and t.b < s.b": lambda t, s: not t[0] < s[0] or t[1] >= s[1],
        "t.a <= s.a and t.b > s.b": lambda t, s: (t[0] != s[0] or t[1] == s[1]) and (t[0] >= s[0] or t[1] <= s[1]),
    }.items(),
)
def test_what_is_said_of_orders_is_what_the_rule_denies(deny: str, means: object) -> None:
    """Determines, falls, strictly: for every pair of small rows, the sentence holds both ways where the rule does."""
    rule = parse_rule(deny)

    def denied(t: tuple[int, int], s: tuple[int, int]) -> bool:
        values = {"a": (t[0], s[0]), "b": (t[1], s[1])}
        outcome = {name: 1 if t_ < s_ else 2 if t_ == s_ else 4 for name, (t_, s_) in values.items()}
        return all(p.op.value & outcome[p.columns[0].name] for p in rule.predicates)

    for t, s in permutations([(a, b) for a in range(3) for b in range(3)], 2):
        said = means(t, s) and means(s, t)  # type: ignore[operator]
        assert said == (not denied(t, s) and not denied(s, t)), (t, s)


def test_names_keep_to_the_words_without_articles() -> None:
    assert name_of("phone is unique within an areacode") == "phone_is_unique_within_areacode"
    assert name_of("no two rows have a different a and a different b") == "a_different_a_and_a_different_b"


def test_rules_of_a_family_are_one_sentence() -> None:
    denied = [
        "t.zip = s.zip and t.city != s.city",
        "t.id = s.id",
        "t.zip = s.zip and t.state != s.state",
        "t.ssn = s.ssn",
        "t.x < s.x and t.y > s.y",
    ]
    told = families(understand(parse_rule(one).predicates) for one in denied)
    assert [(saying.words(), members) for saying, members in told] == [
        ("zip determines city and state", [0, 2]),
        ("id and ssn are each unique", [1, 3]),
        ("x and y rise together", [4]),
    ]


def test_the_first_screen_has_the_rules_of_the_table(clean: Discovery) -> None:
    words = [entry.saying.words() for entry in entries(clean) if entry.tested]
    assert words[0] == "id is unique"
    assert {"zip determines city and state", "zip determines state and city"} & set(words[:4])
    assert any(one in words[:6] for one in ("state and salary determine rate", "salary and state determine rate"))
    assert not any("noise" in one for one in words[:6])


def marks(space: Space, *denied: str) -> np.ndarray:
    rules = np.zeros((len(denied), len(space.predicates)), np.bool_)
    for rule, deny in zip(rules, denied, strict=True):
        for p in parse_rule(deny).predicates:
            rule[space.number[p.left, p.op, p.right]] = True  # type: ignore[index]
    return rules


def test_what_is_rare_in_a_sample_is_weighed_all_the_same(pay: pa.Table) -> None:
    """Two rows share a zip in one of 1,500 pairs: a sample of 500 has none, or one that would count for thousands."""
    space = space_of(pay, Options(cross=False))
    evidence = Evidence(space)
    sample_random(evidence, space.rows, 500, np.random.default_rng(0))
    rules = marks(space, "t.zip = s.zip and t.city != s.city", "t.zip = s.zip and t.noise = s.noise")
    _, (city, noise) = rank(space, rules, *evidence.outcomes())
    assert city.surprise == pytest.approx(np.log10(751) / 4, abs=0.02)  # 750 pairs
    assert noise.surprise < city.surprise - 0.2


def test_a_rule_that_adds_pairs_that_hardly_exist_is_left_out() -> None:
    """Where part determines whole and rises with it, `<=` for `=` says something of hardly any pair more."""
    chance = np.random.default_rng(3)
    part = chance.integers(0, 300, 1000)
    key = chance.integers(0, 30, 1000)
    whole = part // 3
    whole[5] = 40
    rate = chance.integers(0, 50, (101, 30))[whole, key]
    space = space_of(pa.table({"part": part, "whole": whole, "key": key, "rate": rate}), Options(cross=False))
    evidence = Evidence(space)
    sample_random(evidence, space.rows, 200_000, np.random.default_rng(0))
    rules = marks(
        space,
        "t.whole = s.whole and t.key = s.key and t.rate != s.rate",
        "t.part <= s.part and t.whole >= s.whole and t.key = s.key and t.rate != s.rate",
        "t.part < s.part and t.key >= s.key and t.rate != s.rate",
    )
    assert choose(space, rules, np.arange(3), 3, *evidence.outcomes()) == [0, 2]


def test_what_better_rules_imply_is_left_out_unless_all_are_asked_for() -> None:
    chance = np.random.default_rng(2)
    a = chance.integers(0, 60, 300)
    b = chance.permutation(60)[a] // 3
    c = chance.permutation(20)[b] // 2
    table = pa.table({"a": a.astype(str), "b": b.astype(str), "c": c.astype(str)})
    chain = {"a determines b", "b determines c"}
    few, everything = discover(table), discover(table, top=None)
    assert {one.words for one in few.rules} >= chain
    assert "a determines c" not in {one.words for one in few.rules}
    assert {one.words for one in everything.rules} >= {*chain, "a determines c"}
    assert few.total == everything.total == len(everything.rules)


def test_a_dependency_is_told_beside_an_order_that_implies_it() -> None:
    zips = np.arange(200) // 4
    words = {one.words for one in discover(pa.table({"zip": zips, "city": zips // 5})).rules}
    assert {"zip determines city", "zip determines city, and both rise together"} <= words


def test_a_page_is_whole_loads_nothing_and_runs_nothing(dirty: Discovery) -> None:
    page = Page(dirty.html())
    names = {tag for tag, _ in page.tags}
    assert {"svg", "title", "desc", "table", "caption", "th"} <= names
    assert not names & {"script", "img", "b0", "iframe", "object", "embed", "link", "form"}
    for tag, attributes in page.tags:
        assert not any(name.startswith("on") or name == "src" for name in attributes), tag
        assert (attributes.get("href") or "#").startswith("#")
    policy = [a.get("content") for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert "@import" not in dirty.html()
    assert set(re.findall(r"https?://[^\s\"]+", dirty.html())) <= {"http://www.w3.org/2000/svg"}
    assert {tag for tag, count in page.open.items() if count} <= {"meta"}


def test_hostile_names_and_values_are_shown_as_text(dirty: Discovery) -> None:
    page = dirty.html()
    text = Page(page).text
    assert "<script>" not in page
    assert SCRIPT in text
    assert "</td><script>steal(" in text
    assert not set(page) & {"\u202e", "\u0007", "\u001b", "\u0000"}
    assert "\\u202e" in text
    assert f"<bdi>{ARABIC}</bdi>" in page
    assert "x" * 1000 not in page
    assert len(page) < 200_000


def test_the_picture_is_well_formed_and_says_in_words_what_it_shows(dirty: Discovery) -> None:
    svg = draw(dirty.columns, entries(dirty), "p-").svg
    root = ElementTree.fromstring(svg[: svg.index("</svg>") + 6])
    space = "{http://www.w3.org/2000/svg}"
    assert root.get("role") == "img"
    described = root.findtext(f"{space}desc") or ""
    assert "determines" in described
    ids = {one.get("id") for one in root.iter() if one.get("id")}
    assert set((root.get("aria-labelledby") or "").split()) <= ids
    circles = list(root.iter(f"{space}circle"))
    assert circles
    page = dirty.html()
    for link in root.iter(f"{space}a"):
        number = (link.get("href") or "").removeprefix("#p-r")
        assert re.search(rf'<section class="card" id="w\w+-r{number}">', page)


def test_examples_come_with_the_values_that_the_rule_reads(dirty: Discovery) -> None:
    one = next(one for one in dirty.rules if one.saying.kind == "determines" and one.saying.subject == (SCRIPT,))
    rows = hostile().to_pylist()
    assert one.violations
    assert len(one.values) == len(one.examples) > 0
    for (left, right), shown in zip(one.examples, one.values, strict=True):
        assert right is not None
        for number, texts in zip((left, right), shown, strict=True):
            assert len(texts) == len(one.columns) == 2
            assert texts[one.columns.index(SCRIPT)] == str(rows[number - 1][SCRIPT])
            assert all(len(text) <= 41 for text in texts)
    assert all(shown[0] != shown[1] for shown in one.values)


def test_long_values_are_shown_from_where_they_differ() -> None:
    table = pa.table({"k": [1, 1, 2, 2, 3, 3], "v": ["z" * 90 + "a", "z" * 90 + "b", "q", "q", "r", "r"]})
    found = discover(table, error=0.1, max_predicates=2)
    one = next(one for one in found.rules if one.words == "k determines v")
    (first, second) = (row[one.columns.index("v")] for row in one.values[0])
    assert (first[-1], second[-1]) == ("a", "b")


def test_the_same_table_gives_the_same_bytes_in_another_process(pay: pa.Table, tmp_path: Path) -> None:
    file = tmp_path / "pay.parquet"
    pq.write_table(pay.slice(0, 300), file)
    here = discover(file, cross=False, max_predicates=2).html()
    program = (
        "import sys; from weever_stream.discover import discover\n"
        "sys.stdout.buffer.write(discover(sys.argv[1], cross=False, max_predicates=2).html().encode())"
    )
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    there = subprocess.run(
        [sys.executable, "-c", program, str(file)],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        check=True,
    )
    assert there.stdout.decode() == here


def test_a_notebook_shows_a_part_of_a_page_and_a_terminal_a_line(clean: Discovery) -> None:
    part = clean._repr_html_()
    assert "<html" not in part
    assert "<body" not in part
    ids = [a["id"] for _, a in Page(part).tags if "id" in a]
    assert len(ids) == len(set(ids)) > len(entries(clean))
    assert all(re.match(r"w\w{10}-", one or "") for one in ids)
    rules = re.findall(r"([^{}]+)\{", re.sub(r"@media[^{]*\{", "", part[: part.index("</style>")].split("<style>")[1]))
    assert all(one.strip().startswith(".weever") for group in rules for one in group.split(","))
    assert repr(clean) == f"<Discovery of table: {len(clean.rules)} of {clean.total} minimal rules, exact>"
    assert str(clean).startswith("table: 1,500 rows, 7 columns: ")


def test_columns_that_no_rule_is_about_are_named() -> None:
    chance = np.random.default_rng(0)
    table = pa.table({"coin": chance.integers(0, 2, 400), "die": chance.integers(0, 6, 400), "one": [1] * 400})
    found = discover(table, cross=False)
    picture = draw(found.columns, entries(found))
    assert (picture.svg, picture.constant, picture.alone) == ("", ("one",), ("coin", "die"))
    assert "In no rule of this picture" in found.html()


@pytest.mark.parametrize("rows", [0, 1])
def test_a_table_without_pairs_has_a_report_all_the_same(rows: int) -> None:
    found = discover(pa.table({"a": pa.array([1] * rows, pa.int64())}))
    assert "rules are about two" in found.html()
    assert not Page(found.html()).open["section"]


def test_many_columns_stay_readable() -> None:
    chance = np.random.default_rng(4)
    keys = {f"key{at}": chance.integers(0, 40, 200) for at in range(20)}
    table = {**keys, **{f"of{at}": chance.permutation(40)[keys[f"key{at}"]] // 2 for at in range(20)}}
    found = discover(pa.table(table), cross=False, max_predicates=2, top=60)
    picture = draw(found.columns, entries(found))
    assert 20 <= picture.svg.count("<rect") <= 26
    assert picture.left_out


@given(
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=24, unique=True),
    st.lists(st.integers(10, 150), min_size=12, max_size=12),
)
@settings(max_examples=60, deadline=None)
def test_boxes_never_overlap_and_lines_lead_to_the_right(pairs: list[tuple[int, int]], widths: list[int]) -> None:
    edges = [(one, other) for one, other in pairs if one != other]
    sizes = [(float(width), 28.0) for width in widths]
    places = layered(sizes, edges)
    for one, other in combinations(range(12), 2):
        (x, y), (to_x, to_y) = places.centres[one], places.centres[other]
        wide, high = (sizes[one][0] + sizes[other][0]) / 2, 28.0
        assert abs(x - to_x) >= wide - 1e-6 or abs(y - to_y) >= high - 1e-6
    for (one, other), path, turned in zip(edges, places.paths, places.turned, strict=True):
        left, right = (other, one) if turned else (one, other)
        assert path[0] == pytest.approx((places.centres[left][0] + sizes[left][0] / 2, places.centres[left][1]))
        assert path[-1] == pytest.approx((places.centres[right][0] - sizes[right][0] / 2, places.centres[right][1]))
        assert all(a[0] <= b[0] + 1e-6 for a, b in pairwise(path))
    for (x, y), (wide, high) in zip(places.centres, sizes, strict=True):
        assert -1e-6 <= x - wide / 2 <= x + wide / 2 <= places.width + 1e-6
        assert -1e-6 <= y - high / 2 <= y + high / 2 <= places.height + 1e-6


def test_the_command_writes_a_report(pay: pa.Table, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file, page = tmp_path / "pay.parquet", tmp_path / "report.html"
    pq.write_table(pay, file)
    command = ["discover", str(file), "--columns", "zip,city,noise", "--no-cross", "--report"]
    assert run([*command, str(page)]) == 0
    assert "zip determines city" in capfd.readouterr().out
    assert "<b><bdi>zip</bdi></b> determines <b><bdi>city</bdi></b>" in page.read_text(encoding="utf-8")
    assert run([*command, str(tmp_path / "no" / "report.html")]) == 4
    assert "cannot be written" in capfd.readouterr().err


def test_what_hardly_any_pair_tests_is_told_apart(clean: Discovery) -> None:
    told = str(clean)
    doubtful = [entry for entry in entries(clean) if not entry.tested]
    assert doubtful
    assert not any(one.tested for entry in doubtful for one in entry.rules)
    assert told.index("These say little") < told.index(doubtful[0].saying.words())
    assert sum(len(entry.rules) for entry in entries(clean)) == len(clean.rules)

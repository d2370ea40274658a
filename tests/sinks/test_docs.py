"""Every query on docs/tables.md runs, and says what it should of a small story."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.sinks.batches import Pair, Story
from weever_stream.job.options import DeltaSink, source_options
from weever_stream.sinks import DELTA_COLUMNS, REJECT_COLUMNS, open_sinks

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "tables.md").read_text(encoding="utf-8")
QUERIES = re.findall(r"([^\n]*)\n\n```sql\n(.*?)```", PAGE, re.S)
RULE = "zip_determines_city"
ONE, TWO, THREE = Pair(RULE, "1", "2"), Pair(RULE, "1", "3"), Pair("price", "7", None, "warning")


@pytest.fixture(scope="module")
def lake(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lake")
    [sink] = open_sinks(spark, [DeltaSink(kind="delta", path=str(path / "packages_violations"))])
    story = Story(spark)
    for number, (added, removed) in enumerate([([ONE, TWO, THREE], []), ([], [ONE]), ([ONE], [THREE])]):
        sink.write(story.batch(number, added, removed))
    table = spark.createDataFrame([(1, "Lima"), (2, "Cusco"), (3, "Cusco")], "id int, city string")
    table.write.format("delta").save(str(path / "packages"))
    return path


EXPECTED: dict[str, Callable[[list[Any]], bool]] = {
    "know the keys:": lambda rows: len(rows) == 2 and all(row.violation_id == row.computed for row in rows),
    "What is open now": lambda rows: [(row.rule, row.open) for row in rows] == [(RULE, 2)],
    "How many opened": lambda rows: (
        {(row.rule, row.opened, row.closed) for row in rows} == {(RULE, 3, 1), ("price", 1, 1)}
    ),
    "hour off": lambda rows: (
        {(row.rule, row.closed, row.longest_seconds) for row in rows} == {(RULE, 1, 1), ("price", 1, 2)}
    ),
    "Rows in most": lambda rows: (rows[0].key, rows[0].violations) == ("1", 2) and len(rows) == 3,
    "What was open at": lambda rows: {row.violation_id for row in rows} == {TWO.id, THREE.id},
    "Whether both": lambda rows: rows == [],
    "Openings and": lambda rows: [row._change_type for row in rows].count("delete") == 2 and len(rows) == 6,
    "The open violations with": lambda rows: {(row[1], row[3]) for row in rows} == {(1, 2), (1, 3)},
    "Values that": lambda rows: {(row.left_city, row.right_city) for row in rows} == {("Lima", "Cusco")},
    "Up to which": lambda rows: json.loads(rows[0].userMetadata)["source_position"] == '{"version": 20}',
}


def test_every_query_is_expected() -> None:
    assert len(QUERIES) == PAGE.count("```sql") == len(EXPECTED)


@pytest.mark.parametrize(("title", "query"), QUERIES, ids=[title[:16] for title, _ in QUERIES])
def test_query(spark: Any, lake: Path, title: str, query: str) -> None:
    rows = spark.sql(query.replace("/lake/", f"{lake}/")).collect()
    [expected] = [check for begin, check in EXPECTED.items() if title.startswith(begin)]
    assert expected(rows), rows


def test_python_runs(spark: Any, lake: Path) -> None:
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.S):
        exec(code.replace("/lake/", f"{lake}/"), {"spark": spark})


def test_the_columns_are_all_described() -> None:
    for title, columns in (("## log", DELTA_COLUMNS), ("## rejects", REJECT_COLUMNS)):
        section = PAGE.partition(title)[2].partition("\n## ")[0]
        assert tuple(re.findall(r"^\| `(\w+)` \|", section, re.M)) == columns


def test_the_options_on_the_page_of_sinks_are_valid() -> None:
    import yaml

    from weever_stream.job.options import sink_options

    page = (DOCS / "sinks.md").read_text(encoding="utf-8")
    texts = re.findall(r"```yaml\n(.*?)```", page, re.S) + re.findall(r"(?:^    [- s].*\n)+", page, re.M)
    seen = 0
    for text in texts:
        if "kind:" not in text:
            continue
        loaded = yaml.safe_load(re.sub("^    ", "", text, flags=re.M) if text.startswith("    ") else text)
        if isinstance(loaded, dict) and "source" in loaded:
            source_options.validate_python(loaded["source"])
            seen += 1
            continue
        for sink in loaded["sinks"] if isinstance(loaded, dict) else loaded:
            sink_options.validate_python(sink)
            seen += 1
    assert seen == 9

"""The console sink: what a batch looks like, and that values cannot draw."""

from __future__ import annotations

import io
from typing import Any

from tests.sinks.batches import NASTY, Pair, Story
from weever_stream.job.options import ConsoleSink
from weever_stream.sinks.console import Terminal


def printed(batch: Any, rows: int = 10) -> list[str]:
    out = io.StringIO()
    Terminal(ConsoleSink(kind="console", rows=rows), out=out).write(batch)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_batch_reads_like_a_story(spark: Any) -> None:
    story = Story(spark)
    one, two, three = (
        Pair("zip_city", "1", "2"),
        Pair("zip_city", "1", "3", city="x" * 50),
        Pair("price", "7", None, "warning"),
    )
    story.batch(0, [one])
    assert printed(story.batch(1, [two, three], [one])) == [
        '2026-03-08 06:59:59Z  batch 1  +2 -1  {"version": 10}',
        "  - fixed    zip_city  error",
        "             key     1       key   2",
        "               zip   1       zip   1",
        "               city  Lima    city  Cusco",
        "  + violated price  warning",
        "             key     7",
        "               zip   1",
        "               city  Lima",
        "  + violated zip_city  error",
        f"             key     1{' ' * 53}key   3",
        f"               zip   1{' ' * 53}zip   1",
        f"               city  {'x' * 50}    city  Cusco",
        "  open: zip_city 1, price 1",
    ]


def test_only_so_many_are_shown(spark: Any) -> None:
    story = Story(spark)
    pairs = [Pair("rule", str(number)) for number in range(40)]
    lines = printed(story.batch(0, pairs[:30]), rows=3)
    assert sum(line.startswith("  + violated rule") for line in lines) == 3
    assert "  + violated … and 27 more" in lines
    lines = printed(story.batch(1, pairs[30:], pairs[:12]), rows=2)
    assert sum(line.startswith("  + violated rule") for line in lines) == 2
    assert sum(line.startswith("  - fixed    rule") for line in lines) == 2
    assert "  + violated … and 8 more" in lines
    assert "  - fixed    … and 10 more" in lines
    assert lines[-1] == "  open: rule 28"


def test_values_are_escaped_and_nothing_is_said_of_nothing(spark: Any) -> None:
    story = Story(spark)
    lines = printed(story.batch(0, [Pair(f"[bold]{NASTY}", NASTY, "\x1b[31m", city=NASTY)]))
    text = "\n".join(lines)
    assert all(char.isprintable() or char == "\n" for char in text)
    assert "[red]it's[/]" in text
    assert r"\x1b[31m" in text
    assert printed(Story(spark).batch(1)) == []

"""Every regular expression of the package takes time in proportion to its text, whoever wrote that text.

Texts come from rule files, and from messages of Spark that quote rows. Catches: a pattern that tries again from every
character (seconds at ten thousand, hours at a million). Times are only compared with each other: twice the text may
take a little more than twice the time, not four times.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

import weever_stream
from weever_stream.errors import WeeverError
from weever_stream.rules import parse_rule, type_of_name
from weever_stream.rules.mistakes import MISTAKES, hint_for
from weever_stream.stream.failures import _KNOWN, _LOST, told

PUMPS = [
    "a", "A", "0", " ", "\t", "\n", ".", "a.", "A.", "a.A", "_", "A_", "-", "/", "0/", "\\\n", "\\", "'", "''", '"', "`",
    "(", ")", "[", "[A_", "{", "${", "$${", "t.", "t1&", "& t1", "&A(", "1-", "2024-01-01 ", "10:", "+", "1e", "1.", "==",
    "Exception: [A_", "TimeoutException", "weever_stream.errors.X: ", "weever_stream.errors.X: a\n hint: ",
    "a.Error", "decimal(", "varchar ( ", "é", "\u0301", "Column(", "in row ", "Could not find artifact ",
]  # fmt: skip
SMALL, TIMES = 600, 8
"""Linear is 8 times the time, square 64; between them is a margin for a busy machine."""
LIMIT = 30
NOTICED = 0.02
"""Seconds below which a time is noise."""


def patterns() -> dict[str, tuple[re.Pattern[str], bool]]:
    """Every compiled pattern, and whether its module looks for it anywhere in a text or only where it begins."""
    found: dict[str, tuple[re.Pattern[str], bool]] = {}
    for module in pkgutil.walk_packages(weever_stream.__path__, "weever_stream."):
        if module.name.endswith("__main__"):
            continue
        loaded = importlib.import_module(module.name)
        source = inspect.getsource(loaded)
        for name, value in vars(loaded).items():
            if isinstance(value, re.Pattern):
                if isinstance(value.pattern, bytes):
                    value = re.compile(value.pattern.decode("latin-1"), re.ASCII)
                anywhere = re.search(rf"\b{name}\.(?:search|sub|split|findall|finditer)\b", source) is not None
                found[f"{module.name}.{name}"] = value, anywhere
    known = (
        (f"{told.__module__} {number}", re.compile(text, re.DOTALL)) for number, text in enumerate([*_KNOWN, *_LOST])
    )
    return (
        found
        | {name: (pattern, True) for name, pattern in known}
        | {mistake.example: (re.compile(mistake.pattern, re.IGNORECASE), False) for mistake in MISTAKES}
    )


def seconds(call: Callable[[], Any]) -> float:
    began = time.thread_time()
    call()
    return time.thread_time() - began


def grows_too_fast(call: Callable[[str], Any], head: str, tail: str, pump: str) -> bool:
    """Whether a longer text takes out of all proportion longer. Asked again where it seems so, for noise."""
    short, long = (head + pump * (n // len(pump)) + tail for n in (SMALL, SMALL * TIMES))
    for _ in range(3):
        taken = seconds(lambda: call(long))
        if taken < NOTICED or taken < LIMIT * max(seconds(lambda: call(short)), 1e-5):
            return False
    return True


def pumped(call: Callable[[str], Any], *heads: str) -> list[tuple[str, str]]:
    return [(head, pump) for pump in PUMPS for head in heads if grows_too_fast(call, head + pump, "!", pump)]


def test_no_pattern_is_slow():
    found = patterns()
    assert len(found) > 50
    for name in ("weever_stream.stream.failures._CLASS", "weever_stream.sinks.failures._CONDITION"):
        assert found[name][1], "it is looked for anywhere"
    slow = {}
    for name, (pattern, anywhere) in found.items():

        def look(text: str, pattern: re.Pattern[str] = pattern, anywhere: bool = anywhere) -> None:
            pattern.match(text)
            pattern.fullmatch(text)
            for _ in pattern.finditer(text) if anywhere else ():
                pass

        slow[name] = pumped(look, "", "[A_", "a.")
    assert {name: texts for name, texts in slow.items() if texts} == {}


def test_a_quadratic_pattern_would_be_found():
    """This test can fail: what was in the package before."""
    old = re.compile(r"\b((?:[a-z]\w*\.)+[A-Z]\w*(?:Error|Exception))\b")
    assert grows_too_fast(old.findall, "", "!", "a.")


@pytest.mark.parametrize("name", ["a rule", "a hint", "a type", "an error of Spark"])
def test_no_reader_of_texts_is_slow(name: str):
    def rule(text: str) -> None:
        try:
            parse_rule(text, name="r")
        except WeeverError as error:
            error.render()

    def kind(text: str) -> None:
        try:
            type_of_name(text)
        except WeeverError as error:
            error.render()

    readers: dict[str, Callable[[str], Any]] = {
        "a rule": rule,
        "a hint": lambda text: hint_for(text + " (", len(text) + 1),
        "a type": kind,
        "an error of Spark": lambda text: told([text]),
    }
    assert pumped(readers[name], "", "t.a = ", "[DC: t0.a(", "t1&t2&EQ(t1.a,") == []

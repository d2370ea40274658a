"""What people write by habit from SQL or other languages, and what to write instead.

Each mistake has an example that makes it; the tests run them all. The pattern is looked for at the place where the
parser stopped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["MISTAKES", "Mistake", "hint_for"]


@dataclass(frozen=True)
class Mistake:
    """A pattern at the point where parsing stopped, and the hint that helps."""

    example: str
    pattern: str
    hint: str


MISTAKES = (
    Mistake(
        "t.a = s.a or t.b = s.b",
        r"(?:or|xor)\b|\|+|∨",
        "a rule is one conjunction; write a rule of its own for each side of the `or`",
    ),
    Mistake(
        "t.a in (1, 2)",
        r"(?:not\s+)?in\b",
        "a list of values cannot be compared; write a rule for each value",
    ),
    Mistake(
        "t.a is null",
        r"is\b",
        "null satisfies no comparison, so rows with nulls never violate; refuse nulls where the table is written",
    ),
    Mistake(
        "t.a between 1 and 2",
        r"(?:not\s+)?between\b",
        "write both bounds: t.a >= 1 and t.a <= 2",
    ),
    Mistake(
        "t.a like 'x%'",
        r"(?:not\s+)?(?:i|r)?like\b|regexp\b",
        "patterns cannot be matched; add a column with the answer in the source",
    ),
    Mistake(
        "t.a = s.a and lower(t.b) = lower(s.b)",
        r"[^\W\d]\w*\s*\(",
        "functions cannot be called; add a column with the result in the source",
    ),
    Mistake(
        "t.a = null",
        r"null\b",
        "null satisfies no comparison; leave this predicate out",
    ),
    Mistake(
        "t.a + 1 > s.a",
        r"[-+*/%^]",
        "arithmetic cannot be written; add a column with the result in the source, or quote a name that contains it",
    ),
    Mistake("t.a = s.a, t.b != s.b", r"[,;]", "join predicates with `and`"),
    Mistake("t.a = s.a & t.b != s.b", r"&", "join predicates with `and`"),
    Mistake('t.state = "NY"', r'"', "text is written in single quotes: 'NY'; a quoted column has its row: t.\"NY\""),
    Mistake("t.state = 'NY", r"'", "the text has no closing quote; a quote inside text is doubled: 'it''s'"),
    Mistake('t."order date = s.x', r"\.\s*[\"`]", 'the quoted name has no closing quote: t."order date"'),
    Mistake("t.a => s.a", r">", "write >="),
    Mistake("t.a =< s.a", r"<", "write <="),
    Mistake("t.a = s.a t.b = s.b", r"[^\W\d]\w*\s*\.", "join predicates with `and`"),
    Mistake("t.2020 = s.2020", r"\.\s*\d", 'a name that begins with a digit is quoted: t."2020"'),
    Mistake(
        "t.a.b = s.a.b", r"\.\s*[^\W\d]", 'fields of a struct cannot be compared; a name with a dot is quoted: t."a.b"'
    ),
    Mistake("t. = s.a", r"\.", 'a name follows the dot: t.price, or t."€ per kg" in quotes'),
    Mistake("t.a = s.a)", r"[)}\]]", "this bracket was never opened"),
    Mistake("t.a = $1", r"[$@:?{]", "parameters are not filled in; write the constant"),
)
"""The first that fits gives the hint, so the narrower ones come first."""

_COMPILED = [(re.compile(mistake.pattern, re.IGNORECASE), mistake) for mistake in MISTAKES]


def hint_for(text: str, at: int) -> str | None:
    """The hint for the mistake at that offset, if it is a known one."""
    if text[at : at + 1] == "(":
        # What is wrong with a bracket is the word before it: it looks like a function.
        # Looked for backwards, by hand: a pattern that ends at `at` would be tried at every character before it.
        while at and text[at - 1].isspace():
            at -= 1
        while at and (text[at - 1].isalnum() or text[at - 1] == "_"):
            at -= 1
    for pattern, mistake in _COMPILED:
        if pattern.match(text, at):
            return mistake.hint
    return None

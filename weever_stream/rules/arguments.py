"""Rules and keys as function arguments: the forms that every entry point of the package accepts.

    as_rule_file("rules.yaml")                                 # the path of a rule file, or a `RuleFile`
    as_rule_file("t.zip = s.zip and t.city != s.city")         # an expression
    as_rule_file([unique("id"), fd("zip", ["city", "state"]), "t.a < s.a and t.b > s.b"])

Also accepted is whatever carries rules: the result of `discover`, one of its rules, lists of either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from weever_stream.errors import RuleError
from weever_stream.rules.build import parse_rule
from weever_stream.rules.file import RuleFile, read_rules
from weever_stream.rules.model import Rule

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["RulesLike", "as_key", "as_rule_file"]


class CarriesRule(Protocol):
    """Something that was found out about a rule."""

    @property
    def rule(self) -> Rule:
        """The rule."""


class CarriesRules(Protocol):
    """A collection of rules with something said about all of them."""

    @property
    def rules(self) -> Iterable[Rule | CarriesRule]:
        """The rules."""


RulesLike: TypeAlias = "str | Path | RuleFile | Rule | CarriesRule | CarriesRules | Iterable[RulesLike]"
_FORMS = "give an expression, a Rule, a list of them, or the path of a rule file"
_OPERATORS = frozenset("=<>≠≤≥&")
"""Every expression, in whichever notation, has one of these (`&` stands in HoloClean's)."""


def as_rule_file(rules: RulesLike) -> RuleFile:
    """The rules in whatever form they were given. Expressions are named `rule_1`, `rule_2`, … by their place."""
    if isinstance(rules, RuleFile):
        return rules
    if isinstance(rules, Path) or (isinstance(rules, str) and not _is_expression(rules)):
        return read_rules(rules)
    listed = tuple(
        parse_rule(rule, name=f"rule_{number}") if isinstance(rule, str) else rule
        for number, rule in enumerate(_flatten(rules), 1)
    )
    seen: set[str] = set()
    for rule in listed:
        if rule.name in seen:
            raise RuleError(f"more than one rule is named {rule.name}", hint="give each a name of its own: name=…")
        seen.add(rule.name)
    return RuleFile("table", listed)


def _flatten(rules: object) -> Iterator[Rule | str]:
    """Single rules and expressions. `fd` and `order` return tuples, one rule for each column."""
    if isinstance(rules, RuleFile):
        raise RuleError(
            f"the rule file of table {rules.table} is in a list, where its key and columns would be lost",
            hint="give the rule file alone, or only its rules: file.rules",
        )
    if isinstance(rules, (Rule, str)):
        yield rules
    elif isinstance(rule := getattr(rules, "rule", None), Rule):
        yield rule
    else:
        several = getattr(rules, "rules", rules)
        if isinstance(several, (bytes, Mapping)) or not isinstance(several, Iterable):
            raise RuleError(f"{type(rules).__name__} is not a rule", hint=_FORMS)
        for one in several:
            yield from _flatten(one)


def _is_expression(text: str) -> bool:
    """Whether a text is an expression and not a path. A file that exists is a file, whatever its name."""
    if _OPERATORS.isdisjoint(text) or text.lower().endswith((".yaml", ".yml")):
        return False
    try:
        return not Path(text).exists()
    except (OSError, ValueError):  # longer than a path may be, or with a null byte
        return True


def as_key(key: str | Sequence[str] | None) -> tuple[str, ...]:
    """The columns of a key that was given as one name or several; nothing where there is none."""
    return () if key is None else (key,) if isinstance(key, str) else tuple(key)

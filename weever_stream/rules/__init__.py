"""The rule language: denial constraints written in a file or in Python, one normal form, checked types.

    rules = read_rules("rules.yaml")                         # a rule file
    rule = parse_rule("t.zip = s.zip and t.city != s.city")  # or one rule
    bind(rule, schema)                                       # its columns exist and can be compared

Nothing here imports Arrow, pandas or Spark before a schema of theirs is given.
"""

from weever_stream.rules.arguments import RulesLike, as_key, as_rule_file
from weever_stream.rules.bind import BoundRule, TypedPredicate, bind, bind_all
from weever_stream.rules.build import fd, order, parse_rule, unique
from weever_stream.rules.canonical import make_rule
from weever_stream.rules.file import RuleFile, read_rules, read_rules_text
from weever_stream.rules.model import SEVERITIES, Column, Constant, Op, Predicate, Rule, Severity
from weever_stream.rules.references import Secret
from weever_stream.rules.types import ColumnType, Schema, common_type, schema_of, type_of_arrow, type_of_name
from weever_stream.rules.writing import NOTATIONS, Notation, write_rule, write_sql

__all__ = [
    "NOTATIONS",
    "SEVERITIES",
    "BoundRule",
    "Column",
    "ColumnType",
    "Constant",
    "Notation",
    "Op",
    "Predicate",
    "Rule",
    "RuleFile",
    "RulesLike",
    "Schema",
    "Secret",
    "Severity",
    "TypedPredicate",
    "as_key",
    "as_rule_file",
    "bind",
    "bind_all",
    "common_type",
    "fd",
    "make_rule",
    "order",
    "parse_rule",
    "read_rules",
    "read_rules_text",
    "schema_of",
    "type_of_arrow",
    "type_of_name",
    "unique",
    "write_rule",
    "write_sql",
]

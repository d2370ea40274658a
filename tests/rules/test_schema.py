"""The published JSON schema: current, and of one mind with the reader on good files and bad ones."""

from __future__ import annotations

import json
from importlib.resources import files

import jsonschema
import pytest
import yaml

from weever_stream.errors import RuleError
from weever_stream.rules import read_rules_text
from weever_stream.rules.filemodel import json_schema

SCHEMA = json.loads(files("weever_stream.rules").joinpath("schema.json").read_text("utf-8"))
EXAMPLE = """\
table: packages
key: package_code                       # or a list; absent: every row is its own
columns: {zip: string}                  # only where the source has no schema, or to override it
source: {kind: delta, path: /lake/packages}
rules:
  - name: package_code_is_unique
    unique: [package_code]
  - name: zip_determines_city
    fd: zip -> city
  - name: distance_is_symmetric
    deny: t.origin = s.destination and t.destination = s.origin and t.distance != s.distance
    severity: critical
  - name: bigger_parcel_costs_more
    deny: t.distance = s.distance and t.volume < s.volume and t.postage > s.postage
    description: Of two parcels that travel equally far the smaller one must not cost more.
sinks:
  - {kind: delta, path: /lake/packages_violations}
alerts:
  - {kind: pagerduty, routing_key: "${env:PAGERDUTY_KEY}", min_severity: critical}
state: {checkpoint: /lake/_checkpoints/packages, shards: 16}
"""


def test_the_schema_in_the_package_is_the_one_of_the_model():
    # weever validate --schema > weever_stream/rules/schema.json
    assert json_schema() == SCHEMA


def test_the_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


GOOD = [
    EXAMPLE,
    "{table: x, rules: []}",
    "{version: 1, table: {name: x, key: [a, b]}, rules: []}",
    "{table: x, rules: [{name: a, fd: {determinants: [a], dependents: b}, owner: me, metadata: {x: [1, 2]}}]}",
    "{table: x, rules: [{name: a, order: {by: a, of: b, within: [c]}, filter: d = 1, severity: info}]}",
]
BAD = [
    "[]",
    "{table: x}",
    "{rules: []}",
    "{table: x, rules: [], extra: 1}",
    "{version: 2, table: x, rules: []}",
    "{table: x, rules: {}}",
    "{table: x, rules: [{name: a}]}",
    "{table: x, rules: [{deny: t.a = s.a}]}",
    "{table: x, rules: [{name: a, deny: t.a = s.a, unique: [a]}]}",
    "{table: x, rules: [{name: a, deny: t.a = s.a, severity: fatal}]}",
    "{table: x, rules: [{name: a, unique: []}]}",
    "{table: x, rules: [{name: a, order: {by: a}}]}",
    "{table: x, rules: [], sinks: {}}",
]


@pytest.mark.parametrize("text", GOOD)
def test_the_schema_and_the_reader_accept_a_good_file(text):
    jsonschema.validate(yaml.safe_load(text), SCHEMA)
    read_rules_text(text)


@pytest.mark.parametrize("text", BAD)
def test_the_schema_and_the_reader_refuse_a_bad_file(text):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(text), SCHEMA)
    with pytest.raises(RuleError):
        read_rules_text(text)

"""Incremental detection without Spark: a set of rows kept under changes, and the violations that come and go."""

from weever_stream.detect.detector import Detector
from weever_stream.detect.plan import Plan, plan
from weever_stream.detect.shard import Shard, Tally
from weever_stream.detect.violations import OUTPUT_SCHEMA, Deltas, Violation, Violations

__all__ = ["OUTPUT_SCHEMA", "Deltas", "Detector", "Plan", "Shard", "Tally", "Violation", "Violations", "plan"]

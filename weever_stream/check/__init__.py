"""One-shot checking: all rules of a file against a whole table, without Spark.

from weever_stream.check import check

report = check("rules.yaml", "packages.parquet", mode="count")
for result in report.results:
    print(result.rule.name, result.violations, result.rows_involved)
"""

from weever_stream.check.engine import check
from weever_stream.check.report import Report, RuleResult, Violations, write_csv, write_json

__all__ = ["Report", "RuleResult", "Violations", "check", "write_csv", "write_json"]

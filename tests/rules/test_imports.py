"""Reading rules must be quick to start: no Arrow, no pandas, no compiler, no Spark."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("pyarrow", "pandas", "numba", "numpy", "pyspark", "polars", "rich", "typer")


def test_reading_rules_imports_nothing_heavy():
    program = (
        "import sys; from weever_stream.rules import read_rules_text\n"
        "read_rules_text('table: x\\nrules: [{name: a, deny: t.a = s.a}]')\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    seen = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert seen.stdout.strip() == "[]"

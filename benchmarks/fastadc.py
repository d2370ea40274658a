"""Desbordante's FastADC on a Parquet file, as a process of its own: `fastadc.py DATA COLUMNS OUTPUT SHARD`.

It may run in another environment than ours: it needs the packages desbordante, pandas and pyarrow, and nothing of this
repository. The rules go to OUTPUT, a line each; what it cost goes to standard output as JSON. The clock starts when the
table is in memory. No predicates across columns, no error. SHARD is its shard_length: 0 means one
shard, 350 is its default.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path
from time import process_time

import desbordante
import pandas

if __name__ == "__main__":
    data, columns, output, shard = sys.argv[1:]
    frame = pandas.read_parquet(data, columns=columns.split(","))
    algorithm = desbordante.dc.algorithms.FastADC()
    began = process_time()
    algorithm.load_data(table=frame)
    algorithm.execute(allow_cross_columns=False, evidence_threshold=0.0, shard_length=int(shard))
    rules = [str(rule) for rule in algorithm.get_dcs()]
    spent = process_time() - began
    Path(output).write_text("\n".join(rules), encoding="utf-8")
    print(json.dumps({"cpu_s": spent, "rules": len(rules), "version": version("desbordante")}))

#!/bin/bash
# Init script of the cluster: installs the wheel and what it needs, but not pyspark and delta-spark. Those are the
# runtime's own, and pip would put others beside them.
set -euo pipefail
pip=/databricks/python/bin/pip
"$pip" install -r "$WEEVER_FILES/requirements.txt"
"$pip" install --no-deps "$WEEVER_FILES"/weever_stream-0.1.0-py3-none-any.whl

#!/usr/bin/env bash
# Submits a job with the virtual environment that it needs:
#
#     submit.sh JOB [options of weever run] [-- options of spark-submit]
#     submit.sh job.yaml --every "10 seconds" -- --master yarn --num-executors 4
#
# Run it inside the virtual environment that has weever_stream and venv-pack. It packs that environment once, into
# WEEVER_ENVIRONMENT (default ./environment.tar.gz): delete the file after an upgrade. SPARK_SUBMIT names another
# spark-submit than that of the environment; its Spark must be the pyspark of the environment. Client mode: the driver
# runs here, and SIGTERM to this script ends the job in good order, with code 143.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ -n "${VIRTUAL_ENV:-}" ] || { echo "submit.sh: activate the virtual environment of the job first" >&2; exit 2; }
[ $# -gt 0 ] && [ "$1" != "--" ] || { echo "usage: submit.sh JOB [run options] [-- spark-submit options]" >&2; exit 2; }

run=()
while [ $# -gt 0 ] && [ "$1" != "--" ]; do run+=("$1"); shift; done
[ $# -eq 0 ] || shift

python="$VIRTUAL_ENV/bin/python"
environment=${WEEVER_ENVIRONMENT:-environment.tar.gz}
if [ ! -e "$environment" ]; then
    echo "submit.sh: packing $VIRTUAL_ENV into $environment; this takes minutes" >&2
    # Compiled kernels lie beside the package and are packed with it: else every executor compiles its own.
    "$python" -c "import weever_stream.detect.shard"
    "$VIRTUAL_ENV/bin/venv-pack" -q -o "$environment"
fi

# The connectors as weever_stream finds them: files, or else coordinates for Spark to fetch.
jars=()
while read -r option; do jars+=("$option"); done < <("$python" - <<'PYTHON'
from weever_stream.stream.jars import KINDS, connectors

found = connectors(*KINDS)
for option, values in (("--jars", found.paths), ("--packages", found.packages)):
    if values:
        print(option, ",".join(map(str, values)), sep="\n")
PYTHON
)

export PYSPARK_DRIVER_PYTHON=$python PYSPARK_PYTHON=./environment/bin/python
if [[ ${SPARK_SUBMIT_OPTS:-} != *log4j* ]]; then
    quiet=$("$python" -c "from weever_stream import stream; print(stream.__path__[0])")/log4j2.properties
    export SPARK_SUBMIT_OPTS="${SPARK_SUBMIT_OPTS:-} -Dlog4j2.configurationFile=file:$quiet"
fi

"${SPARK_SUBMIT:-$VIRTUAL_ENV/bin/spark-submit}" --deploy-mode client "${jars[@]}" \
    --archives "$environment#environment" "$@" "$here/main.py" run "${run[@]}" &
jvm=$!
# Spark's JVM, the parent of Python here, ends at once on SIGTERM. weever is the one to ask.
trap 'pkill -TERM -P "$jvm" -f main.py || kill -TERM "$jvm"' TERM INT
code=0
while kill -0 "$jvm" 2>/dev/null; do
    code=0
    wait "$jvm" || code=$?
done
exit "$code"

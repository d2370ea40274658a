#!/bin/bash
# What the image starts. `driver` and `executor` are the words of Spark on Kubernetes; anything else is a command.
set -eu

# Spark's JVM is the parent of Python under spark-submit, and ends at once on SIGTERM. weever is the one to ask: it
# ends its batch, and spark-submit then ends with its code, 143.
driver() {
    "$SPARK_HOME/bin/spark-submit" --conf "spark.driver.bindAddress=${SPARK_DRIVER_BIND_ADDRESS:-0.0.0.0}" \
        --deploy-mode client "$@" &
    local jvm=$! code=0
    trap 'pkill -TERM -P "$jvm" -f main.py || kill -TERM "$jvm"' TERM INT
    # A trap ends `wait`: it is asked again until there is nobody to wait for.
    while kill -0 "$jvm" 2>/dev/null; do
        code=0
        wait "$jvm" || code=$?
    done
    exit "$code"
}

executor() {
    local options=() name
    # SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, …: one option each, in the order of their numbers.
    while read -r name; do
        options+=("${!name}")
    done < <(compgen -v SPARK_JAVA_OPT_ | sort -t_ -k4n)
    exec "$JAVA_HOME/bin/java" "${options[@]}" -Xms"$SPARK_EXECUTOR_MEMORY" -Xmx"$SPARK_EXECUTOR_MEMORY" \
        -cp "${SPARK_CONF_DIR:-$SPARK_HOME/conf}:${SPARK_CLASSPATH:-}:$SPARK_HOME/jars/*:${SPARK_EXTRA_CLASSPATH:-}" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
}

case "${1:-}" in
    driver | executor) "$@" ;;
    *) exec "$@" ;;
esac

"""Whether the brokers of a Kafka sink answer, asked before the first batch and when a batch cannot be sent.

A producer that reaches no broker says that the topic is "not present in metadata", just as it does for a topic that is
missing, and Spark asks it four times. One request for the cluster's nodes tells the two apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weever_stream.errors import OutputError
from weever_stream.job.options import revealed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from weever_stream.job.options import KafkaSink

__all__ = ["client_options", "require_brokers"]

_PATIENCE = "kafka.max.block.ms"
_DEFAULT_PATIENCE = "15000"
"""Milliseconds that a producer waits for a broker. Spark tries four times, and Kafka's default is a minute each."""


def client_options(sink: KafkaSink) -> dict[str, str]:
    """The options of Spark's Kafka sink. Secrets are in the clear: hand it over at once."""
    return {_PATIENCE: _DEFAULT_PATIENCE, **revealed({**sink.options, "kafka.bootstrap.servers": sink.servers})}


def require_brokers(spark: SparkSession, sink: KafkaSink) -> None:
    """Raises `OutputError` if no broker answers, or if they refuse the user."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    jvm: Any = spark._jvm
    options, settings = client_options(sink), jvm.java.util.HashMap()
    for name, value in options.items():
        if name.startswith("kafka."):
            settings.put(name.removeprefix("kafka."), value)
    admin = None
    try:
        admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
        milliseconds = jvm.java.util.concurrent.TimeUnit.MILLISECONDS
        admin.describeCluster().nodes().get(int(float(options[_PATIENCE])), milliseconds)
    except Py4JJavaError as error:
        raise _unreachable(error.java_exception, sink.topic) from None
    finally:
        if admin is not None:
            admin.close(jvm.java.time.Duration.ofSeconds(1))


def _unreachable(failure: Any, topic: str) -> OutputError:
    """The error for the client's exception: its class alone, because its text may quote settings."""
    cause = failure.getCause() or failure
    kind = str(cause.getClass().getSimpleName())
    if kind.endswith(("AuthenticationException", "AuthorizationException")):
        return OutputError(
            f"the topic {topic} cannot be written: the brokers refuse the job: {kind}",
            hint="check the credentials under the sink's `options`, and the ACLs",
        )
    return OutputError(
        f"the topic {topic} cannot be written: its brokers cannot be reached: {kind}",
        hint="check the sink's `servers`, and that the brokers run; the batch is written at the next start",
    )

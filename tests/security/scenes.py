"""One process that goes through everything a job can say: it runs, is looked into, and fails in one way after another.

`python -m tests.security.scenes FOLDER` is started by `test_canaries` with a secret in every place that takes one and
a mark in a row's values, and ends with a line for each scene and its exit code. One JVM serves all scenes, because
its start is most of the cost.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.conftest import SETTINGS
from weever_stream.cli import run
from weever_stream.stream.jars import connectors

__all__ = ["ROW", "RULE", "SCENES", "SECRETS", "write_jobs"]

ROW = "ROWVALUE-4711"
"""A text in the table. Sinks, dead letters and the state hold it, and nothing else does."""
RULE = "../../../it's `a` rule"
"""The `open` table has a folder for each rule."""
SECRETS = {
    name: f"CANARY-{number}-Zx81"  # no word in it that Spark would hide by itself
    for number, name in enumerate((
        "SOURCE_OPTION", "SINK_PASSWORD", "SINK_KEY", "LETTERS_PASSWORD", "STORE_KEY", "STORE_SECRET", "S3A_SECRET",
        "AZURE_KEY", "PLAIN_NAME", "ALERT_URL", "PAGER_KEY", "HOOK_SECRET", "HOOK_HEADER", "MAIL_PASSWORD",
        "BROKERS", "SOURCE_PASSWORD",
    ))
}  # fmt: skip
_IN_FILES = ("SINK_PASSWORD", "STORE_SECRET", "AZURE_KEY")
"""Those that are given by `${file:…}` instead of `${env:…}`."""
_JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="weever" password="{}";'
_QUICK = {"kafka.max.block.ms": 1500, "kafka.request.timeout.ms": 1000, "kafka.delivery.timeout.ms": 1500}


def write_jobs(folder: Path) -> dict[str, str]:
    """Writes the job files and the secrets' files; returns the environment that has the other secrets."""
    (folder / "secrets").mkdir()
    for name in _IN_FILES:
        (folder / "secrets" / name).write_text(SECRETS[name] + "\n")

    def secret(name: str) -> str:
        return f"${{file:{folder}/secrets/{name}}}" if name in _IN_FILES else f"${{env:{name}}}"

    def sasl(name: str) -> dict[str, Any]:
        return {
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": _JAAS.format(secret(name)),
        }

    broken = {**sasl("SINK_PASSWORD"), "kafka.ssl.keystore.key": secret("SINK_KEY"), **_QUICK}
    letters = {**sasl("LETTERS_PASSWORD"), **_QUICK}
    sinks = {
        "delta": {"kind": "delta", "path": f"{folder}/tables"},
        "kafka": {"kind": "kafka", "servers": "127.0.0.1:1", "topic": "violations", "options": broken},
    }
    files = {"kind": "files", "path": f"{folder}/feed", "options": {"user.password": secret("SOURCE_OPTION")}}
    job: dict[str, Any] = {
        "table": "rows",
        "key": "id",
        "columns": {"id": "bigint", "a": "bigint", "c": "string"},
        "rules": [{"name": RULE, "fd": "a -> c"}],
        "source": files,
        "sinks": [sinks["delta"]],
        "state": {
            "checkpoint": f"{folder}/checkpoint",
            "shards": 2,
            "inline_bytes": 0,
            "filesystem": {"access_key": secret("STORE_KEY"), "secret_key": secret("STORE_SECRET")},
        },
        "spark": {
            "spark.hadoop.fs.s3a.secret.key": secret("S3A_SECRET"),
            "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net": secret("AZURE_KEY"),
            "spark.weever.plain": secret("PLAIN_NAME"),
            "spark.eventLog.enabled": True,
            "spark.eventLog.compress": False,
            "spark.eventLog.dir": f"{folder}/events",
            **{name: value for name, value in SETTINGS.items() if name != "spark.driver.extraJavaOptions"},
            "spark.driver.extraJavaOptions": SETTINGS["spark.driver.extraJavaOptions"] + " -Xss4m",
            "spark.master": "local[2]",  # what fails is not tried again: that would only take time
            "spark.local.dir": f"{folder}/local",
            **connectors("delta", "kafka").settings(),  # at once: a running JVM takes no new ones
        },
        "alerts": [  # none of them arrives, and that is told
            {"kind": "slack", "webhook": f"https://hooks.invalid/{secret('ALERT_URL')}"},
            {"kind": "pagerduty", "routing_key": secret("PAGER_KEY"), "url": "https://pager.invalid/enqueue"},
            {
                "kind": "webhook",
                "url": "http://127.0.0.1:1/hook",
                "allow_hosts": ["127.0.0.1"],
                "secret": secret("HOOK_SECRET"),
                "headers": {"X-Api-Key": secret("HOOK_HEADER")},
            },
            {
                "kind": "email",
                "host": "mail.invalid",
                "sender": "weever@mail.invalid",
                "to": ["ops@mail.invalid"],
                "username": "weever",
                "password": secret("MAIL_PASSWORD"),
            },
        ],
    }
    brokers = {
        "kind": "kafka",
        "servers": f"{secret('BROKERS')}.invalid:9092",
        "topic": "rows",
        "options": {**sasl("SOURCE_PASSWORD"), "kafka.default.api.timeout.ms": 1000},
    }
    strict = {"max_share": 0, "sink": {**sinks["kafka"], "topic": "letters", "options": letters}}
    jobs: dict[str, dict[str, Any]] = {
        "job": job,
        "sink": {**job, "sinks": [sinks["kafka"]]},
        "letters": {**job, "source": {**files, "rejects": strict}},
        "column": {**job, "rules": [{"name": RULE, "fd": "a -> nothing"}]},
        "source": {**job, "source": brokers, "state": {**job["state"], "checkpoint": f"{folder}/other"}},
    }
    for name, described in jobs.items():
        (folder / f"{name}.yaml").write_text(json.dumps(described, indent=1))
    (folder / "feed").mkdir()
    (folder / "events").mkdir()
    return {name: text for name, text in SECRETS.items() if name not in _IN_FILES}


def _add(folder: Path, *rows: dict[str, Any] | str) -> None:
    """One more file of changes."""
    number = len(list((folder / "feed").iterdir()))
    beside = folder / f"{number}.json"
    beside.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    beside.rename(folder / "feed" / f"{number:05}.json")


def _row(key: int, version: int, **values: Any) -> dict[str, Any]:
    return {"id": key, "a": 1, "c": f"{ROW}-{key}", "_change_type": "upsert", "_commit_version": version, **values}


class _FailingWorker:
    """A sink whose Python worker fails, with the row's values in its exception, as any library's may have them."""

    def write(self, batch: Any) -> None:
        def fail(batches: Iterator[Any]) -> Iterator[Any]:
            for one in batches:
                raise ValueError(f"cannot cast {one.column('left_values')[0].as_py()}")
            yield from ()

        batch.deltas.mapInArrow(fail, batch.deltas.schema).collect()


def _with_failing_worker(command: Callable[[], int]) -> int:
    import weever_stream.stream.run  # noqa: F401 - and with it whatever opens sinks

    loaded = [module for name, module in sys.modules.items() if name.startswith("weever_stream.stream.")]
    opening = [(module, module.open_sinks) for module in loaded if hasattr(module, "open_sinks")]
    assert opening
    for module, _ in opening:
        module.open_sinks = lambda *given, **more: [_FailingWorker()]
    try:
        return command()
    finally:
        for module, opened in opening:
            module.open_sinks = opened


def _with_brokers_that_die(command: Callable[[], int]) -> int:
    """Brokers that answer at the start and not when a batch is sent: only then does Spark get the sink's options."""
    from weever_stream.sinks import kafka

    require, calls = kafka.require_brokers, iter([True])

    def answered(*given: Any) -> None:
        if not next(calls, False):
            require(*given)

    kafka.require_brokers = answered
    try:
        return command()
    finally:
        kafka.require_brokers = require


SCENES: dict[str, int | str] = {
    "validate": 0,
    "explain": 0,
    "doctor": 0,
    "run": 0,
    "inspect": 0,
    "violations": 1,
    "missing column": 3,
    "failing worker": 3,
    "failing sink, debugged": 4,
    "failing dead letters": 4,
    "unreachable source": 3,
}
"""The exit code that each must have, or what it raises."""


def _scenes(folder: Path) -> Iterator[tuple[str, Callable[[], int]]]:
    def weever(*arguments: str) -> Callable[[], int]:
        return lambda: run([f"{folder}/{word}" if word.endswith(".yaml") else word for word in arguments])

    yield "validate", weever("validate", "job.yaml")
    yield "explain", weever("explain", "job.yaml")
    yield "doctor", weever("doctor", "job.yaml")
    _add(folder, _row(1, 1), _row(2, 1), {**_row(3, 1), "a": ROW}, f"{ROW} is no JSON")
    yield "run", weever("run", "job.yaml", "--once")
    yield "inspect", weever("state", "inspect", "job.yaml", "--verify")
    yield "violations", weever("violations", "job.yaml")
    yield "missing column", weever("run", "column.yaml", "--once")
    _add(folder, _row(4, 2), _row(5, 2), f"{ROW} again")
    yield "failing worker", lambda: _with_failing_worker(weever("run", "job.yaml", "--once"))
    os.environ["WEEVER_DEBUG"] = "1"
    yield "failing sink, debugged", lambda: _with_brokers_that_die(weever("run", "sink.yaml", "--once"))
    del os.environ["WEEVER_DEBUG"]
    yield "failing dead letters", weever("run", "letters.yaml", "--once")
    yield "unreachable source", weever("run", "source.yaml", "--once", "--take-over")


def main(folder: Path) -> None:
    """Plays every scene; the outcome of each is kept in a file of its own, the streams are the parent's."""
    codes: dict[str, Any] = {}
    for name, command in _scenes(folder):
        began = time.monotonic()
        for stream in (sys.stdout, sys.stderr):
            print(f"@@scene {name}", file=stream, flush=True)
        try:
            codes[name] = command()
        except Exception as error:  # a debugged run raises
            import traceback

            traceback.print_exc()
            codes[name] = type(error).__name__
        print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)
    (folder / "codes.json").write_text(json.dumps(codes))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Tells a data catalog which rules hold: OpenLineage events with the facet `dataQualityAssertions`.

On where OPENLINEAGE_URL is set, as for OpenLineage's own clients; their other variables that concern us are read too
(OPENLINEAGE_ENDPOINT, OPENLINEAGE_API_KEY, OPENLINEAGE_NAMESPACE, OPENLINEAGE_DISABLED). A job is one run: START, then
RUNNING with an assertion for every rule when something has changed, once a minute at most, and COMPLETE, FAIL or ABORT
in the end. Events are made in the batch and sent by a thread, the latest only: a catalog that does not answer costs
nothing, and is told the present when it does. That is enough for a catalog, and not enough for alerts.

Their client (openlineage-python 1.54) brings 16 packages, two HTTP libraries among them, for what is one POST of JSON:
so this is by hand, with the standard library.
"""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from contextlib import suppress
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from weever_stream.errors import EngineError
from weever_stream.observe import logs
from weever_stream.rules.model import Column, Op
from weever_stream.rules.references import Secret
from weever_stream.rules.writing import write_rule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weever_stream.job.job import Job
    from weever_stream.observe.metrics import Report
    from weever_stream.rules.model import Rule

__all__ = ["Lineage", "assertion", "dataset_of", "lineage_of"]

_EVENT = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACET = (
    "https://openlineage.io/spec/facets/1-1-0/DataQualityAssertionsDatasetFacet.json"
    "#/$defs/DataQualityAssertionsDatasetFacet"
)
_EVERY, _PATIENCE, _LAST_PATIENCE = 60.0, 10.0, 5.0
"""Seconds: between two events of a running job; for an answer; for the last event when the job ends."""
_OPEN_LINEAGE_KNOWS = {"info": "warn", "warning": "warn", "error": "error", "critical": "error"}
_log = logs.get("lineage")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the key elsewhere."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Lineage:
    """The run of one job, as a catalog sees it. `url`: where events are posted. Use it as a context."""

    def __init__(
        self,
        url: str,
        dataset: tuple[str, str],
        job: str,
        rules: Sequence[Rule],
        *,
        run_id: str,
        namespace: str = "default",
        key: str | None = None,
        every: float = _EVERY,
    ) -> None:
        self._url, self._dataset, self._rules, self._every = url, dataset, rules, every
        self._job = {"namespace": namespace, "name": f"weever.{job}"}
        self._run_id, self._key = run_id, key
        self._known: dict[str, dict[str, Any]] | None = None
        """What every rule came to, when it was last told of."""
        self._next: dict[str, Any] | None = None
        self._wake, self._ending = threading.Condition(), False
        self._failing = False
        self._opener = urllib.request.build_opener(_NoRedirects)
        self._thread = threading.Thread(target=self._serve, name="weever lineage", daemon=True)

    def batch(self, report: Report) -> None:
        """A batch is done. Nothing is said of one that changes no rule's outcome."""
        known = {rule.name: assertion(rule, report.open, report.unlisted) for rule in self._rules}
        for name in report.backfilling:  # not all is known of it: what was said of it before holds until it is
            known.pop(name, None)
        if (known := {**(self._known or {}), **known}) != self._known:
            self._known = known
            self._put("RUNNING")

    def __enter__(self) -> Lineage:
        self._put("START")
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._wake:
            self._ending = True
            self._put("COMPLETE" if kind is None else "FAIL" if issubclass(kind, Exception) else "ABORT")
        self._thread.join(_LAST_PATIENCE)

    def _put(self, what: str) -> None:
        with self._wake:
            self._next = self.event(what)
            self._wake.notify()

    def event(self, what: str) -> dict[str, Any]:
        """An event as JSON has it."""
        namespace, name = self._dataset
        table: dict[str, Any] = {"namespace": namespace, "name": name}
        if self._known is not None:
            facet = {"_producer": _producer(), "_schemaURL": _FACET, "assertions": list(self._known.values())}
            table["inputFacets"] = {"dataQualityAssertions": facet}
        return {
            "eventTime": datetime.now(timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "eventType": what,
            "producer": _producer(),
            "schemaURL": _EVENT,
            "run": {"runId": self._run_id},
            "job": self._job,
            "inputs": [table],
            "outputs": [],
        }

    def _serve(self) -> None:
        """The life of the thread: the first event at once, then one in a while, the last one without waiting."""
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._next is not None or self._ending)
                event, self._next = self._next, None
            if event is None:
                return
            self._send(event)
            with self._wake:
                self._wake.wait_for(lambda: self._ending, self._every)

    def _send(self, event: dict[str, Any]) -> None:
        body = json.dumps(event).encode()
        request = urllib.request.Request(self._url, body, {"Content-Type": "application/json"}, method="POST")
        if self._key is not None:
            request.add_unredirected_header("Authorization", f"Bearer {self._key}")
        reason = None
        try:
            with self._opener.open(request, timeout=_PATIENCE):
                pass
        except urllib.error.HTTPError as error:
            reason = f"status {error.code}"
            with suppress(Exception):
                error.close()
        except Exception as error:  # whatever a network can do; the thread lives on
            reason = type(getattr(error, "reason", None) or error).__name__
        if reason is not None and not self._failing:
            _log.warning("lineage_failed", "the catalog does not take events", reason=reason)
        self._failing = reason is not None


def assertion(rule: Rule, listed: Mapping[str, int], unlisted: Mapping[str, int]) -> dict[str, Any]:
    """What a rule came to, in the facet's words. Success does not depend on severity, as the facet wants it."""
    found = listed.get(rule.name, 0) + unlisted.get(rule.name, 0)
    told = {
        "assertion": _kind(rule),
        "success": found == 0,
        "severity": _OPEN_LINEAGE_KNOWS[rule.severity],
        "name": rule.name,
        "description": rule.description,
        "expected": "0",
        "actual": str(found),
        "content": write_rule(rule),
        "contentType": "weever",
        "params": {"severity": rule.severity, "fingerprint": rule.fingerprint},
    }
    return {name: value for name, value in told.items() if value is not None}


def _kind(rule: Rule) -> str:
    """What sort of rule it is, by its predicates: however it was written."""
    same = [
        isinstance(p.left, Column) and isinstance(p.right, Column) and p.left.name == p.right.name and p.left != p.right
        for p in rule.predicates
    ]
    ops = [predicate.op for predicate in rule.predicates]
    if not all(same) or not set(ops) <= {Op.EQ, Op.NE}:
        return "denial_constraint"
    return {0: "unique", 1: "functional_dependency"}.get(ops.count(Op.NE), "denial_constraint")


def dataset_of(job: Job, namespace: str) -> tuple[str, str]:
    """The table's namespace and name, as OpenLineage's naming has them."""
    source = job.source
    if source.kind == "kafka":
        servers = "" if isinstance(source.servers, Secret) else source.servers.partition(",")[0].strip()
        return f"kafka://{servers}", source.topic
    if source.path is None:
        return namespace, str(getattr(source, "table", job.file.table))
    parts = urlsplit(source.path)
    if parts.scheme in ("", "file"):
        return "file", parts.path
    before, _, host = parts.netloc.rpartition(
        "@"
    )  # Azure's container stands before the @, or else a key and its secret
    place = parts.netloc if ":" not in before else host
    return f"{'s3' if parts.scheme in ('s3a', 's3n') else parts.scheme}://{place}", parts.path.strip("/")


def lineage_of(job: Job, environ: Mapping[str, str], run_id: str) -> Lineage | None:
    """The lineage of a job, if the environment says where it goes."""
    url = environ.get("OPENLINEAGE_URL", "")
    if not url or environ.get("OPENLINEAGE_DISABLED", "").lower() in ("1", "true"):
        return None
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise EngineError("OPENLINEAGE_URL is no address of a web service", hint="for example http://marquez:5000")
    namespace = environ.get("OPENLINEAGE_NAMESPACE") or "default"
    return Lineage(
        f"{url.rstrip('/')}/{environ.get('OPENLINEAGE_ENDPOINT', 'api/v1/lineage').lstrip('/')}",
        dataset_of(job, namespace),
        job.name,
        job.file.rules,
        run_id=run_id,
        namespace=namespace,
        key=environ.get("OPENLINEAGE_API_KEY") or None,
    )


def _producer() -> str:
    """Who says it. A name, because there is no address that would tell more."""
    try:
        return f"urn:weever-stream:{version('weever-stream')}"
    except PackageNotFoundError:
        return "urn:weever-stream:unknown"

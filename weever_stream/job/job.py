"""A job file: rules with a source, sinks, a place for state and a trigger, checked before Spark starts.

`read_job` fills in `${env:…}` and `${file:…}` and raises every error that it finds, each at its line and column. The
same rule file serves `check`, which needs none of these parts.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from weever_stream.errors import Place, RuleError, RuleErrors, did_you_mean
from weever_stream.job import alerts, learning, options
from weever_stream.job.alerts import AlertOptions, alert_options
from weever_stream.job.learning import learn_options
from weever_stream.job.options import State, duration, sink_options, source_options
from weever_stream.job.routes import Route, routes_of
from weever_stream.rules.file import read_rules
from weever_stream.rules.references import Secret

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from weever_stream.rules.file import RuleFile
    from weever_stream.rules.nodes import Node

__all__ = ["SPARK_HIDES", "Job", "check_alerts", "default_name", "job_of", "read_job", "state_of"]

_REDACTION = "spark.redaction.regex"
SPARK_HIDES = "(?i)secret|password|token|access[.]?key"
"""What Spark hides of its own accord: settings and options of whose name or value this is a part."""
_STATE: TypeAdapter[State] = TypeAdapter(State)
_METRICS: TypeAdapter[options.Metrics] = TypeAdapter(options.Metrics)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_LOCATION = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]+):)?(.*)", re.DOTALL)
_SAME_STORE = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "wasb": "wasbs"}
"""Schemes by which one object store is reached in several ways."""
_PARTS = {"source": "source: {kind: delta, path: /lake/packages}", "state": "state: {checkpoint: /lake/_checkpoints/x}"}


@dataclass(frozen=True)
class Job:
    """What `weever run` runs."""

    file: RuleFile
    source: options.DeltaSource | options.KafkaSource | options.FilesSource
    sinks: tuple[
        options.DeltaSink | options.KafkaSink | options.FilesSink | options.QuarantineSink | options.ConsoleSink, ...
    ]
    state: State
    trigger: str | None = None
    metrics: options.Metrics = field(default_factory=options.Metrics)
    alerts: tuple[AlertOptions, ...] = ()
    learn: learning.Learn | None = None
    """Which rules it looks for itself; None: none."""

    @property
    def name(self) -> str:
        """What tells this job from all others: as the file has it, else made from where its checkpoint is."""
        return default_name(self.state.checkpoint) if self.file.name is None else _text(self.file.name)

    @property
    def connectors(self) -> frozenset[str]:
        """The connectors that Spark needs for it."""
        kinds = {self.source.kind, *(sink.kind for sink in self._written)}
        return frozenset({"quarantine": "delta"}.get(kind, kind) for kind in kinds) & {"delta", "kafka"}

    @property
    def settings(self) -> dict[str, str | Secret]:
        """The job's own settings of Spark; and that the values of settings and options that hold secrets, whatever
        they are called, are shown neither in its event log nor in its web pages.
        """
        settings = {
            name: value if isinstance(value, Secret) else _text(value) for name, value in self.file.spark.items()
        }
        if hidden := sorted(self._hidden):
            known = _text(settings.get(_REDACTION, SPARK_HIDES))
            settings[_REDACTION] = "|".join([known, *map(re.escape, hidden)])
        return settings

    @property
    def _hidden(self) -> set[str]:
        """The names of settings and connector options whose values came from references."""
        parts = [self.file.spark, self.source.options]
        parts += [getattr(sink, "options", {}) for sink in self._written]
        names = {name for part in parts for name, value in part.items() if isinstance(value, Secret)}
        return {name.removeprefix("spark.hadoop.") for name in names}  # as Hadoop's own list of settings has them

    @property
    def _written(self) -> list[Any]:
        """All that is written to: sinks of violations, of rejected records, of learned rules."""
        letters = self.source.rejects.sink
        return [*self.sinks, *([letters] if letters else []), *(self.learn.sinks if self.learn else [])]

    @property
    def routes(self) -> list[Route]:
        """Who hears of which rule, and how."""
        return routes_of(self.alerts, self.file.rules, self.file.key)

    @property
    def remember_drops(self) -> int:
        """How many dropped keys a shard remembers. Kafka and Delta bring the changes of a key in their order."""
        if self.source.remember_drops is not None:
            return self.source.remember_drops
        return 100_000 if self.source.kind == "files" else 0


def _text(value: Any) -> str:
    value = value.reveal() if isinstance(value, Secret) else value
    return str(value).lower() if isinstance(value, bool) else str(value)


def default_name(checkpoint: str) -> str:
    """A job's name where it has none: the last part of its checkpoint's path and a digest of the whole.

    The same for every spelling of one location, and over restarts.
    """
    scheme, path = _LOCATION.fullmatch(checkpoint).groups()  # type: ignore[union-attr]  # it matches any text
    scheme = (scheme or "file").lower()
    location = f"{_SAME_STORE.get(scheme, scheme)}:{'/'.join(filter(None, path.split('/')))}"
    last = re.sub(r"[^A-Za-z0-9_.-]+", "-", re.split("[:/]", location)[-1])[-40:].strip("-.")
    digest = hashlib.blake2b(location.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{last}-{digest}" if last else digest


def read_job(path: str | Path, environ: Mapping[str, str]) -> Job:
    """Reads a job file. Raises `RuleError` with every error found."""
    return job_of(read_rules(path).resolve(environ))


def state_of(file: RuleFile, environ: Mapping[str, str]) -> State | None:
    """The state of a job alone: references of its other parts may well be missing here. None where there is none."""
    alone = replace(file, name=None, source=None, sinks=(), alerts=(), metrics=None, learn=None, spark={})
    errors: list[RuleError] = []
    state = _checked("", _STATE, alone.resolve(environ).state, file.node("state"), errors)
    RuleErrors.raise_all(errors)
    return state if isinstance(state, State) else None


def job_of(file: RuleFile) -> Job:
    """The job that a rule file describes."""
    errors: list[RuleError] = []
    if file.contract:
        hint = "weever convert contract.yaml --to weever -o job.yaml, then add them"
        raise RuleError("a data contract is no job: it has no source and no state", place=_place(file), hint=hint)
    for part, example in _PARTS.items():
        if getattr(file, part) is None:
            errors.append(RuleError(f"`{part}` is missing", place=_place(file), hint=f"for example {example}"))
    if not file.key:
        errors.append(
            RuleError("`key` is missing", place=_place(file), hint="a stream finds the old row of a change by its key")
        )
    source = _checked("Source", source_options, file.source, file.node("source"), errors)
    state = _checked("", _STATE, file.state, file.node("state"), errors)
    metrics = _checked("Metrics", _METRICS, file.metrics, file.node("metrics"), errors)
    learn = _checked("Learn", learn_options, file.learn, file.node("learn"), errors)
    node = file.node("sinks")
    sinks = [
        _checked("Sink", sink_options, sink, node.child(number) if node else None, errors)
        for number, sink in enumerate(file.sinks)
    ]
    errors += _unsplittable(source, sinks, node)
    told = _targets(file, errors)
    errors += _unnameable(file)
    if isinstance(source, options.DeltaSource) and (source.path is None) == (source.table is None):
        errors.append(RuleError("a Delta source has a path or a table, one of both", place=_place(file, "source")))
    if file.trigger is not None:
        try:
            duration(file.trigger)
        except ValueError as error:
            errors.append(RuleError(str(error), place=_place(file, "trigger")))
    RuleErrors.raise_all(errors)
    sinks = sinks or [options.ConsoleSink(kind="console")]
    return Job(file, source, tuple(sinks), state, file.trigger, metrics or options.Metrics(), tuple(told), learn)


def _unnameable(file: RuleFile) -> list[RuleError]:
    if file.name is None or _NAME.fullmatch(_text(file.name)):
        return []
    hint = "up to 64 letters, digits, _, . and -, beginning with a letter or digit: packages-production"
    return [RuleError("`name` is not a valid name of a job", place=_place(file, "name"), hint=hint)]


def _unsplittable(source: Any, sinks: Sequence[Any], node: Node | None) -> list[RuleError]:
    """Whole rows can only be read again from a Delta table."""
    errors = []
    for number, sink in enumerate(sinks):
        if isinstance(sink, options.QuarantineSink) and sink.tables == "split" and source is not None:
            if isinstance(source, options.DeltaSource):
                continue
            at = node.child(number) if node else None
            place = (at.child("tables") or at).place() if at else None
            hint = "leave `tables` out: the table `keys` names the rows, and your own table can be joined with it"
            errors.append(RuleError(f"a {source.kind} source cannot be split", place=place, hint=hint))
    return errors


def check_alerts(file: RuleFile) -> list[AlertOptions]:
    """The targets of a file, with every error of `alerts` raised, without its references: those may be there only where
    the job runs.
    """
    errors: list[RuleError] = []
    targets = _targets(replace(file, alerts=tuple(_as_if_resolved(alert) for alert in file.alerts)), errors)
    RuleErrors.raise_all(errors)
    return targets


def _as_if_resolved(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _as_if_resolved(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_if_resolved(item) for item in value]
    return Secret(value) if isinstance(value, str) and "${" in value else value


def _targets(file: RuleFile, errors: list[RuleError]) -> list[Any]:
    """Who is told, with all that is wrong about it."""
    node, found = file.node("alerts"), len(errors)
    told = [
        _checked("Alert", alert_options, alert, node.child(number) if node else None, errors)
        for number, alert in enumerate(file.alerts)
    ]
    errors += _repeated(told, node)
    if len(errors) == found:
        try:
            routes_of(told, file.rules, file.key, node.place() if node else None)
        except RuleError as error:
            errors.append(error)
    return told


def _repeated(targets: Sequence[AlertOptions | None], node: Node | None) -> list[RuleError]:
    """Targets are told apart by name: in notes, in metrics, and where a rule says to whom it goes."""
    names = [target.name for target in targets if target is not None]
    again = {name for name in names if names.count(name) > 1}
    place = node.place() if node else None
    return [
        RuleError(f"two targets are named {name}", place=place, hint="give each a `name` of its own")
        for name in sorted(again)
    ]


def _place(file: RuleFile, part: str | None = None) -> Place | None:
    node = file.node(part) if part else None
    return node.place() if node else Place(file.path) if file.path else None


def _checked(part: str, adapter: TypeAdapter[Any], value: Any, node: Node | None, errors: list[RuleError]) -> Any:
    """The value as its model, or what is wrong with it."""
    if value is None:
        return None
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=True)
        errors += [_told(part, finding, value, node) for finding in found]
        return None


def _told(part: str, finding: Any, value: Any, node: Node | None) -> RuleError:
    place = node
    for step in finding["loc"]:  # pydantic puts the names of alternatives in between: those are not in the file
        if place is not None and (following := place.child(step)) is not None:
            place = following
    last, kind = str(finding["loc"][-1]) if finding["loc"] else "", finding["type"]
    where = place.place() if place is not None else None
    if kind == "extra_forbidden" and (named := _key_node(node, finding["loc"])) is not None:
        where = named.place()
    if kind == "extra_forbidden":
        known = _fields(part, value, finding["loc"])
        return RuleError(
            f"there is no field `{last}` here", place=where, hint=did_you_mean(last, known) or _list(known)
        )
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        kinds = finding.get("ctx", {}).get("expected_tags", "'delta', 'kafka', 'files'").replace("'", "")
        return RuleError("`kind` is missing or unknown", place=where, hint=f"one of {kinds}")
    if kind == "missing":
        return RuleError(f"`{last}` is missing", place=where)
    said = str(finding["msg"]).removeprefix("Value error, ")
    return RuleError(f"`{last}`: {said[:1].lower()}{said[1:]}", place=where)


def _key_node(node: Node | None, steps: Sequence[str | int]) -> Node | None:
    """Where the last step of a path is written as a key."""
    for step in steps[:-1]:
        node = (node.child(step) or node) if node is not None else None
    last = steps[-1]
    return node.value[last][0] if node is not None and isinstance(node.value, dict) and last in node.value else None


def _fields(part: str, value: Any, steps: Sequence[str | int]) -> list[str]:
    """The fields of the model that a mapping is of: `kind` and the part of the file name it."""
    if part == "Learn":
        if steps[0] != "sinks":
            return list(learning.Learn.model_fields)
        return list((options.KafkaSink if "kafka" in steps else learning.EventsTable).model_fields)
    kind = str(value.get("kind", "")) if isinstance(value, dict) else ""
    module = alerts if part == "Alert" else options
    model = getattr(module, kind.capitalize() + part, State)
    return list(model.model_fields)


def _list(names: list[str]) -> str:
    return "the fields are " + ", ".join(names)

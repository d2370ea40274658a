"""`weever doctor`: what a job needs of this machine, line by line: what is there, and what to do about what is not.

Looks only, and takes about a second. With `--start` it starts Spark too, fetches the connectors if need be, and lets a
Python worker answer: that is the whole way a job goes, short of its data.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weever_stream.cli.exit_codes import ExitCode
from weever_stream.cli.output import Format
from weever_stream.errors import EngineError, WeeverError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weever_stream.job.job import Job
    from weever_stream.stream.jars import Kind

__all__ = ["doctor"]

_NEEDED_SPACE = 1 << 30
"""Bytes: connector jars are 23 MB, but Spark's own way of fetching them takes hundreds."""


@dataclass(frozen=True)
class Finding:
    """A line: what was looked at, whether it is well, what was found, and what to do where it is not."""

    name: str
    well: bool
    found: str
    hint: str | None = None


def doctor(
    job: Annotated[
        Path | None, typer.Argument(help="A job file: look only for what it needs.", show_default=False)
    ] = None,
    start: Annotated[bool, typer.Option("--start", help="Start Spark too; fetches the connectors if need be.")] = False,
    form: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.text,
) -> None:
    """Check the environment and explain how to fix problems.

    Exits with 0 where all is well and with 3 where something is missing.
    """
    asked, kinds = _of_job(job) if job is not None else ([], _every_kind())
    findings = [*asked, *_findings(kinds)]
    # Where something is missing Spark would only say the same again, later and longer.
    if start and all(finding.well for finding in findings):
        findings.append(_session(kinds))
    well = all(finding.well for finding in findings)
    if form is Format.json:
        outcome = {"version": 1, "well": well, "findings": [asdict(finding) for finding in findings]}
        typer.echo(json.dumps(outcome, indent=2, ensure_ascii=False))
    else:
        _print(findings)
    if not well:
        raise typer.Exit(ExitCode.COULD_NOT_RUN)


def _every_kind() -> Sequence[Kind]:
    from weever_stream.stream.jars import KINDS

    return KINDS


def _findings(kinds: Sequence[Kind]) -> Iterator[Finding]:
    yield Finding("Python", True, f"{platform.python_version()} at {sys.executable}")
    yield _java()
    packages = [_package("pyspark", ">=4.0.1,<4.3"), _package("pandas", ">=2.2,<3"), _package("pyarrow", ">=18")]
    if "delta" in kinds:
        packages.append(_package("delta-spark", ">=4.2,<5"))
    yield from packages
    if all(package.well for package in packages):
        for kind in kinds:
            yield _connector(kind)
    yield _kernels()
    yield _space()


def _of_job(job: Path) -> tuple[list[Finding], Sequence[Kind]]:
    """Whether a job file can be read, and its connectors; all of them where it cannot."""
    from weever_stream.job.job import read_job

    try:
        asked = read_job(job, os.environ)
    except WeeverError as error:
        bad = Finding("job", False, error.render(), "fix the file; weever validate checks its rules alone")
        return [bad], _every_kind()
    kinds = [kind for kind in _every_kind() if kind in asked.connectors]
    return [Finding("job", True, f"{job} needs {' and '.join(kinds) or 'no connectors'}"), *_source(asked)], kinds


def _source(job: Job) -> Iterator[Finding]:
    """What would keep the job from starting, or make its answers wrong."""
    from weever_stream.stream.preflight import check_job

    found = check_job(job)
    for error in found.refusals:
        yield Finding("source", False, error.message, error.hint)
    for error in found.not_ours:
        yield Finding("sink", False, error.message, error.hint)
    for warning in found.warnings:
        yield Finding("source", False, warning, "make the key unique and never null, or name another one under `key:`")
    if found.revision and found.noted is not None:
        lines = ", ".join(found.revision.lines())
        allowed = job.state.rule_changes == "allow"
        hint = "weever plan shows what a start would do, weever run --rule-changes allow does it"
        yield Finding("rules", allowed, f"not those of the checkpoint: {lines}", hint)
    for line in found.unchecked:
        yield Finding("source", True, f"not checked: {line}")
    if found.table_version is not None and not found.refusals and not found.warnings:
        yield Finding("source", True, f"the table is at version {found.table_version}, and fits the rules")


def _java() -> Finding:
    from weever_stream.stream.java import java

    try:
        found = java()
    except EngineError as error:
        return Finding("Java", False, error.message, error.hint)
    return Finding("Java", True, f"{found.version} at {found.program}, named by {found.named_by}")


def _package(name: str, fits: str) -> Finding:
    hint = f'pip install "{name}{fits}"'
    try:
        found = version(name)
    except PackageNotFoundError:
        return Finding(name, False, "not installed", hint)
    return Finding(name, True, found) if _fits(found, fits) else Finding(name, False, f"{found} does not fit", hint)


def _fits(found: str, fits: str) -> bool:
    """Whether a version is in a range such as `>=4.0.1,<4.3`: only its leading numbers are compared."""

    def numbers(text: str) -> tuple[int, ...]:
        return tuple(int(part) for part in text.split(".") if part.isdigit())

    least, _, below = fits.partition(",<")
    return numbers(least.removeprefix(">=")) <= numbers(found) and (not below or numbers(found) < numbers(below))


def _connector(kind: Kind) -> Finding:
    from weever_stream.stream.jars import MAIN, cache_folder, connectors, fetched, in_spark, wanted

    name = f"connector {kind}"
    if folder := os.environ.get("WEEVER_JARS"):
        try:
            own = next(path for path in connectors(kind).paths if path.name.startswith(MAIN[kind]))
        except StopIteration:
            return Finding(name, True, "in Spark's own folder")
        except EngineError as error:
            return Finding(name, False, error.message, error.hint)
        return Finding(name, True, f"{own.name} in {folder}, named by WEEVER_JARS")
    if in_spark(kind):
        return Finding(name, True, "in Spark's own folder")
    if jars := fetched(kind):
        return Finding(name, True, f"cached, {jars[0].name} and {len(jars) - 1} more in {cache_folder(kind)}")
    if maven := shutil.which("mvn"):
        return Finding(name, True, f"not fetched yet; Maven at {maven} will, when a job first starts")
    return Finding(name, True, f"not fetched yet, and no Maven; Spark will fetch {wanted(kind)[0][0]} itself")


def _kernels() -> Finding:
    import weever_stream

    package = Path(weever_stream.__file__).parent
    named = os.environ.get("NUMBA_CACHE_DIR")
    folder = Path(named) if named else package
    compiled = len(list(folder.rglob("*.nbi"))) if folder.is_dir() else 0
    if compiled:
        return Finding("kernels", True, f"{compiled} compiled, in {folder}")
    return Finding("kernels", True, "not compiled yet; the first run does it and keeps them")


def _space() -> Finding:
    from weever_stream.stream.jars import cache_home

    folder = cache_home()
    there = next(path for path in (folder, *folder.parents) if path.is_dir())
    free = shutil.disk_usage(there).free
    said = f"{free / (1 << 30):,.1f} GB free at {folder}"
    elsewhere = "or set XDG_CACHE_HOME to another folder"
    if not os.access(there, os.W_OK):
        return Finding("cache", False, f"{there} cannot be written", f"check its rights, {elsewhere}")
    if free < _NEEDED_SPACE:
        return Finding("cache", False, said, f"make room, {elsewhere}")
    return Finding("cache", True, said)


def _session(kinds: Sequence[Kind]) -> Finding:
    from time import perf_counter

    from weever_stream.stream.session import session

    begin = perf_counter()
    try:
        spark = session(kinds, app="weever doctor")
    except EngineError as error:
        return Finding("session", False, error.message, error.hint)
    began = perf_counter()
    try:
        answered = spark.range(2).mapInArrow(lambda batches: batches, "id long").count()
    except Exception as error:  # whatever Spark raises: the line tells its first words
        first = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        hint = "the Python of the workers must have pyarrow and pandas: set PYSPARK_PYTHON to this Python"
        return Finding("session", False, f"Spark starts, but no Python worker answers: {first}", hint)
    finally:
        spark.stop()
    took = f"{began - begin:.1f} s to start, {perf_counter() - began:.1f} s for the first Python worker"
    return Finding("session", answered == 2, f"Spark {spark.version}: {took}")


def _print(findings: Sequence[Finding]) -> None:
    """A line for each finding, whole: a path that is broken cannot be copied."""
    from rich.text import Text

    from weever_stream.cli.tables import open_console
    from weever_stream.drawing import escaped

    console = open_console()
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        sign = Text("ok   ", "green") if finding.well else Text("bad  ", "bold red")
        hint = [f"hint: {finding.hint}"] if finding.hint else []
        first, *more = [escaped(line) for line in [*finding.found.splitlines(), *hint]] or [""]
        console.print(sign + Text(f"{finding.name:<{width}}  {first}"))
        for line in more:
            console.print(Text(" " * (width + 7) + line))
    bad = sum(not finding.well for finding in findings)
    last = "all is well" if not bad else f"{bad} thing{'s' * (bad != 1)} to fix"
    console.print(Text(last))

"""The pages on the stream show job files, tables of fields and commands that hold. Catches documentation that has gone stale.

Nothing here starts Spark: transcripts on the pages are of real runs and are not run again.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from weever_stream.cli.app import GROUPS, SECTIONS
from weever_stream.job import learning, options
from weever_stream.job.job import Job, job_of
from weever_stream.rules import read_rules_text

ROOT = Path(__file__).parents[2]
PAGES = ("job.md", "feeds.md", "quickstart.md", "sinks.md", "learn-on-the-stream.md")
MODELS = {
    "`source`, every kind": options.DeltaSource,
    "`source: {kind: delta}`": options.DeltaSource,
    "`source: {kind: kafka}`": options.KafkaSource,
    "`source: {kind: files}`": options.FilesSource,
    "`state`": options.State,
    "`learn`": learning.Learn,
}


def text_of(page: str) -> str:
    return (
        (ROOT / "docs" / page).read_text(encoding="utf-8") if page != "README.md" else (ROOT / page).read_text("utf-8")
    )


def yaml_blocks(page: str) -> list[str]:
    found = re.findall(r"^( *)```yaml\n(.*?)^ *```", text_of(page), re.S | re.M)
    return ["\n".join(line[len(indent) :] for line in body.splitlines()) for indent, body in found]


def jobs(page: str) -> list[str]:
    """The blocks that are whole job files: a table, a source and a state."""
    return [block for block in yaml_blocks(page) if re.search(r"^source:", block, re.M) and "rules:" in block]


def read(text: str, environ: dict[str, str]) -> Job:
    return job_of(read_rules_text(text).resolve(environ))


@pytest.mark.parametrize("page", ["README.md", "job.md", "feeds.md", "quickstart.md", "learn-on-the-stream.md"])
def test_job_files_on_the_pages_are_jobs(page: str, tmp_path: Path) -> None:
    secret = tmp_path / "jaas"
    secret.write_text("secret", encoding="utf-8")
    shown = jobs(page)
    assert shown
    for text in shown:
        job = read(text.replace("/run/secrets/jaas", str(secret)), {})
        assert job.file.rules
        assert job.file.key
        assert "secret" not in repr(job)


@pytest.mark.parametrize("page", ["job.md", "feeds.md"])
def test_every_yaml_block_is_a_whole_job(page: str) -> None:
    assert jobs(page) == yaml_blocks(page)


def test_the_sinks_on_their_page_are_sinks() -> None:
    fragment = next(block for block in yaml_blocks("sinks.md") if block.startswith("sinks:"))
    start = (
        "table: t\nkey: k\nrules: [{name: r, unique: [c]}]\nsource: {kind: files, path: /x}\nstate: {checkpoint: /c}\n"
    )
    job = read(start + fragment, {})
    assert [sink.kind for sink in job.sinks] == ["delta", "kafka", "files", "console"]


def fields_in(page: str, heading: str) -> set[str]:
    """The first cells of the table under a heading, as far as they name fields."""
    _, _, rest = text_of(page).partition(f"### {heading}\n")
    section = re.split(r"^#+ ", rest, flags=re.M)[0]
    return {name.partition(".")[0] for name in re.findall(r"^\| `([\w.]+)`", section, re.M)}


@pytest.mark.parametrize(("heading", "model"), MODELS.items(), ids=list(MODELS))
def test_tables_of_fields_name_fields(heading: str, model: type) -> None:
    assert fields_in("job.md", heading) <= set(model.model_fields)  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["delta", "kafka", "files"])
def test_every_field_of_a_source_is_told(kind: str) -> None:
    told = fields_in("job.md", "`source`, every kind") | fields_in("job.md", f"`source: {{kind: {kind}}}`")
    model = {"delta": options.DeltaSource, "kafka": options.KafkaSource, "files": options.FilesSource}[kind]
    assert set(model.model_fields) <= told


def test_every_field_of_the_state_is_told() -> None:
    assert set(options.State.model_fields) == fields_in("job.md", "`state`")


def test_every_field_of_learn_is_told() -> None:
    assert set(learning.Learn.model_fields) == fields_in("job.md", "`learn`")


@pytest.mark.parametrize(("verb", "page"), [("learn", "learn-on-the-stream.md"), ("review", "learn-on-the-stream.md")])
def test_every_option_of_learning_is_told(verb: str, page: str) -> None:
    command = typer.main.get_command(_app(verb))
    told = {*re.findall(r"(--[a-z][\w-]+)", text_of(page)), "--help"}
    options = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
    assert options <= told, options - told


def test_every_option_of_run_is_told() -> None:
    command = typer.main.get_command(_app("run"))
    told = set(re.findall(r"`(--[\w-]+)", text_of("job.md")))
    assert {option for parameter in command.params for option in parameter.opts if option.startswith("--")} <= told | {
        "--help"
    }


def _app(verb: str) -> typer.Typer:
    from importlib import import_module

    app = typer.Typer(add_completion=False)
    app.command(verb)(getattr(import_module(f"weever_stream.cli.{verb}"), verb))
    return app


@pytest.mark.parametrize("page", [*PAGES, "guarantees.md", "README.md"])
def test_commands_on_the_pages_are_verbs(page: str) -> None:
    commands = [name for names in SECTIONS.values() for name in names]
    for command, subcommand in re.findall(r"^\s*(?:\$ )?weever (\w+)(?: (\w+))?", text_of(page), re.M):
        assert command in commands, f"{page}: weever {command}"
        assert command not in GROUPS or subcommand in GROUPS[command][1], f"{page}: weever {command} {subcommand}"


def test_python_on_the_job_page_compiles() -> None:
    for body in re.findall(r"^```python\n(.*?)^```", text_of("job.md"), re.S | re.M):
        compile(body, "docs/job.md", "exec")


def test_fields_of_a_batch_are_told() -> None:
    from weever_stream.stream.progress import BatchReport

    told = set(re.findall(r"`(\w+)`", text_of("job.md")))
    assert set(BatchReport.__dataclass_fields__) <= told

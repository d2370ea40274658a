"""The command line as a whole: its help, its environment variables, its misspelt commands and unused options."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from weever_stream.cli import run
from weever_stream.cli.app import GROUPS, SECTIONS, commands

PATHS = [
    path
    for names in SECTIONS.values()
    for name in names
    for path in ([f"{name} {one}" for one in GROUPS[name][1]] if name in GROUPS else [name])
]


def options_of(command: object) -> list[object]:
    return [one for one in command.params if one.param_type_name == "option"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", PATHS)
def test_variables_are_named_as_the_options_are_written(path: str) -> None:
    for option in options_of(dict(commands())[path]):
        spelling = next(one for one in option.opts if one.startswith("--"))  # type: ignore[attr-defined]
        if spelling == "--help":
            continue
        expected = "_".join(["WEEVER", *path.split(), *spelling[2:].split("-")]).upper()
        assert option.envvar == expected  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("variable", "value", "command", "reason"),
    [
        ("WEEVER_DISCOVER_FORMAT", "xml", "discover rows.csv", "--format"),
        ("WEEVER_CONVERT_FROM", "xml", "convert rules.yaml --to sql", "--from"),
        ("WEEVER_ALERTS_SILENCE_FOR", "for ever", "alerts silence job.yaml", "--for"),
        ("WEEVER_RULES_REVIEW_LIST", "perhaps", "rules review job.yaml", "--list"),
    ],
)
def test_variables_are_read(
    variable: str,
    value: str,
    command: str,
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "job.yaml").write_text(
        "table: t\nkey: id\nsource: {kind: files, path: in, format: json}\ncolumns: {id: bigint, a: bigint, b: bigint}\n"
        "rules:\n  - {name: a_b, fd: a -> b}\nsinks: [{kind: console}]\nstate: {checkpoint: cp}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(variable, value)
    assert run(command.split()) == 3
    assert reason in capsys.readouterr().err


def test_every_command_has_a_place_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    places = [text.index(f"\n{heading}:") for heading in SECTIONS]
    assert places == sorted(places)
    listed = re.findall(r"^  ([a-z]+)  ", text, re.M)
    assert listed == [name for names in SECTIONS.values() for name in names]
    assert "…" not in text
    assert "..." not in text.split("\n", 1)[1]


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_without_a_subcommand_shows_its_help(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([group, "--help"]) == 0
    text = capsys.readouterr().out
    assert run([group]) == 3, "as where an argument is missing"
    assert capsys.readouterr() == (text, "")
    assert re.findall(r"^  ([a-z]+)  ", text.partition("Commands:")[2], re.M) == list(GROUPS[group][1])


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("chek", "did you mean check?"),
        ("alerts unsilense", "did you mean unsilence"),
        ("state inspct job.yaml", "did you mean inspect?"),
        ("xyzzy", "weever --help lists the commands"),
        ("check --limt 3", "--limit"),
    ],
)
def test_misspelt_names_are_corrected(line: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(line.split()) == 3
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        "state rescale job.yaml --dry-run",
        "state inspect job.yaml --dry-run",
        "state gc job.yaml --verify",
        "alerts test job.yaml --for 2h",
        "alerts unsilence job.yaml --target ops",
    ],
)
def test_subcommands_take_only_their_own_options(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(line.split()) == 3
    assert "No such option" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("discover rows.csv --master local[1]", "--master"),
        ("discover rows.csv --rows-at-once 1000", "--rows-at-once"),
        ("discover rows.csv --spark csv --memory 2GB", "--memory"),
        ("convert rules.yaml --to sql --into contract.yaml", "--into"),
        ("validate rules.yaml --schema", "--schema"),
    ],
)
def test_options_without_effect_are_refused(
    line: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.csv").write_text("id,a\n1,2\n")
    (tmp_path / "rules.yaml").write_text("table: rows\nrules:\n  - {name: a, unique: a}\n")
    monkeypatch.chdir(tmp_path)
    assert run(line.split()) == 3
    assert reason in capsys.readouterr().err

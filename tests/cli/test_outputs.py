"""Where results go, and what is said when they cannot go there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from weever_stream.cli import run

VERBS = [
    "check rules.yaml rows.csv",
    "check rules.yaml rows.csv --format json",
    "check rules.yaml rows.csv --format csv",
    "validate rules.yaml",
    "validate rules.yaml --format json",
    "convert rules.yaml --to sql",
    "explain rules.yaml",
    "--help",
]


@pytest.fixture(autouse=True)
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rules.yaml").write_text("table: rows\nkey: id\nrules:\n  - {name: a_b, fd: a -> b}\n")
    (tmp_path / "rows.csv").write_text("id,a,b\n1,2,3\n2,2,4\n")
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("WEEVER_"):
            monkeypatch.delenv(name)


def shell(command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    environment["WEEVER"] = f"{sys.executable} -m weever_stream.cli"
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment, timeout=120)


@pytest.mark.parametrize("verb", [VERBS[0], *(pytest.param(verb, marks=pytest.mark.slow) for verb in VERBS[1:])])
@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("> /dev/full", "No space left on device"),
        pytest.param(">&-", "Bad file descriptor", marks=pytest.mark.slow),  # a process for each verb, again
    ],
)
def test_an_output_that_takes_nothing_is_told_with_code_4(verb: str, target: str, why: str) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    done = shell(f"$WEEVER {verb} {target}")
    assert done.returncode == 4
    assert done.stderr == (
        f"weever: the results cannot be written: {why}\n  hint: check where the output goes, or name a file\n"
    )


def test_a_closed_output_does_not_matter_where_a_file_is_named() -> None:
    done = shell("$WEEVER check rules.yaml rows.csv --format json -o out.json >&-")
    assert (done.returncode, done.stderr) == (1, "")
    assert json.loads(Path("out.json").read_text())["rows"] == 2


@pytest.mark.parametrize("name", ["-", "/dev/stdout", "/proc/self/fd/1"])
def test_the_names_of_standard_output_are_not_files(capfd: pytest.CaptureFixture[str], name: str) -> None:
    before = sorted(os.listdir("."))
    assert run(["check", "rules.yaml", "rows.csv", "--format", "json", "-o", name]) == 1
    assert json.loads(capfd.readouterr().out)["rows"] == 2
    assert run(["convert", "rules.yaml", "--to", "paper", "-o", name]) == 0
    assert capfd.readouterr().out == "¬{ t.a = s.a ∧ t.b ≠ s.b }\n"
    assert sorted(os.listdir(".")) == before


@pytest.mark.parametrize("verb", ["check rules.yaml rows.csv", "convert rules.yaml --to paper"])
def test_a_link_is_followed_and_stays_one(capfd: pytest.CaptureFixture[str], verb: str) -> None:
    Path("real.txt").write_text("before")
    Path("link.txt").symlink_to("real.txt")
    assert run([*verb.split(), "-o", "link.txt"]) in (0, 1)
    assert Path("link.txt").is_symlink()
    assert "before" not in Path("real.txt").read_text()
    assert Path("real.txt").stat().st_size > 0


def test_what_is_written_to_a_pipe_arrives_and_the_pipe_stays() -> None:
    done = shell("mkfifo pipe; cat pipe & $WEEVER check rules.yaml rows.csv --format csv -o pipe; echo $?; wait")
    assert "rule,severity,id" in done.stdout
    assert Path("pipe").is_fifo()


def test_a_converted_file_is_whole_or_as_it_was(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["convert", "rules.yaml", "--to", "weever", "-o", "no/such/file"]) == 4
    assert "hint: check its path, rights and space" in capfd.readouterr().err
    assert run(["convert", "rules.yaml", "--to", "weever", "-o", "rules.yaml"]) == 0
    assert "deny: t.a = s.a and t.b != s.b" in Path("rules.yaml").read_text()
    assert sorted(os.listdir(".")) == ["rows.csv", "rules.yaml"]


def test_the_demo_does_not_write_over_other_files(capfd: pytest.CaptureFixture[str]) -> None:
    mine = Path("rules.yaml").read_text()
    assert run(["demo", "--pause", "0", "--save", "."]) == 4
    assert capfd.readouterr().err == (
        "weever: rules.yaml is there already and is not the demo's\n  hint: name another folder\n"
    )
    assert (Path("rules.yaml").read_text(), Path("packages.csv").exists()) == (mine, False)


def test_an_interrupt_says_so(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import weever_stream.check

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(weever_stream.check, "check", interrupted)
    assert run(["check", "rules.yaml", "rows.csv"]) == 130
    assert capfd.readouterr().err == "weever: interrupted\n"


def test_a_version_in_the_environment_is_no_command(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEEVER_VERSION", "1")
    monkeypatch.setenv("WEEVER_VALIDATE_FORMAT", "json")
    assert run(["validate", "rules.yaml"]) == 0
    assert json.loads(capfd.readouterr().out)["valid"]

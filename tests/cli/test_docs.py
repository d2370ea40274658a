"""docs/check.md runs: its files, its command, its output, its id, and its list of options and codes."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from weever_stream.cli import run

PAGE = (Path(__file__).parents[2] / "docs" / "check.md").read_text()


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return [text for marked, text in found if marked == language]


def without_times(text: str) -> str:
    return re.sub(r"\d+\.\d{3} s", "TIME", text)


def test_the_example_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "packages.csv").write_text(blocks("")[0])
    (tmp_path / "rules.yaml").write_text(blocks("yaml")[0])
    command, _, shown = next(block for block in blocks("") if block.startswith("$ weever")).partition("\n")
    assert run(command.split()[2:]) == 1
    assert without_times(capfd.readouterr().out) == without_times(shown)


def test_the_id_on_the_page_is_the_id() -> None:
    text, expected = re.findall(r"sha256\('(.*?)'\.encode\(\)\).*# (\w{32})", PAGE)[0]
    assert hashlib.sha256(text.encode()).hexdigest()[:32] == expected


def test_every_option_on_the_page_exists(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "--help"]) == 0
    known = capfd.readouterr().out
    for option in set(re.findall(r"`(--[a-z-]+)", PAGE)):
        assert option in known, option

"""Pages that show code run it. Catches documentation that no longer holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from weever_stream.cli import run
from weever_stream.rules import read_rules_text

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("docs/*.md"), ROOT / "README.md"])


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language, unindented."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```", page.read_text(encoding="utf-8"), re.S | re.M)
    return ["\n".join(line[len(indent) :] for line in body.splitlines()) for indent, body in found]


@pytest.mark.parametrize(("page", "said"), [("detector.md", "Detector.load"), ("learn.md", "Learner.load")])
def test_pages_about_classes_run(page: str, said: str) -> None:
    code = "\n".join(blocks(ROOT / "docs" / page, "python"))
    assert said in code
    exec(compile(code, f"docs/{page}", "exec"), {})


def test_the_page_of_approximate_rules_runs() -> None:
    code = "\n".join(blocks(ROOT / "docs" / "approximate-rules.md", "python"))
    assert "ErrorWatch.load" in code
    exec(compile(code, "docs/approximate-rules.md", "exec"), {})


PROGRAMS = [
    (page.name, code)
    for page in PAGES
    for code in re.findall(r"python - <<'EOF'\n(.*?)EOF", page.read_text("utf-8"), re.S)
]


@pytest.mark.parametrize(("page", "code"), PROGRAMS, ids=[page for page, _ in PROGRAMS])
def test_programs_that_made_the_numbers_of_a_page_run(page: str, code: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(code, f"docs/{page}", "exec"), {})
    assert re.search(r"\d", capsys.readouterr().out)


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "quickstart.md"], ids=lambda page: page.name)
def test_rule_files_on_the_first_pages_are_valid(page: Path) -> None:
    files = blocks(page, "yaml")
    assert files
    for file in files:
        assert read_rules_text(file).rules


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_readme_shows_what_the_command_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    [table], [rules] = blocks(ROOT / "README.md", "csv"), blocks(ROOT / "README.md", "yaml")
    [shown] = blocks(ROOT / "README.md", "console")
    (tmp_path / "packages.csv").write_text(table + "\n", encoding="utf-8")
    (tmp_path / "rules.yaml").write_text(rules, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert run(["check", "rules.yaml", "packages.csv"]) == 1
    printed = capfd.readouterr().out
    timeless = [re.sub(r" +\d\.\d+ s$", "", text.rstrip()).rstrip() for text in (*printed.splitlines(), "")]
    assert timeless[:-1] == [re.sub(r" +\d\.\d+ s$", "", line.rstrip()) for line in shown.splitlines()[1:]]


def test_files_named_on_how_it_works_exist() -> None:
    text = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
    for name in re.findall(r"`(weever_stream/[\w/]+(?:\.py)?/?)`", text):
        assert (ROOT / name).exists(), name


def test_nothing_names_a_place_outside_the_project() -> None:
    outside = re.compile(r"/(?:work|home|root|Users)/|/tmp/\w")
    for file in [*ROOT.glob("weever_stream/**/*.py"), *ROOT.glob("docs/**/*.md"), ROOT / "README.md"]:
        assert not outside.search(file.read_text(encoding="utf-8")), file

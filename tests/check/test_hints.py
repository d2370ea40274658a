"""What a check says about data that it cannot take, and about where it is."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from weever_stream.check import check
from weever_stream.cli import run
from weever_stream.discover import discover
from weever_stream.errors import DataError, WeeverError
from weever_stream.rules import fd, parse_rule, read_rules_text, unique


def problem(path: Path | str) -> str:
    with pytest.raises(WeeverError) as caught:
        check(unique(["zip"]), path)
    return caught.value.render().replace(str(path), "DATA")


def test_utf_16_is_known_by_its_mark(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("zip,city\n1,a\n", "utf-16")
    assert (
        problem(path)
        == "DATA:1: the text is not UTF-8\n  hint: name its encoding: --encoding utf-16; or convert it: iconv -f utf-16 -t utf-8"
    )
    path.write_bytes("zip,city\n1,é\n".encode("latin1"))
    assert problem(path).endswith("iconv -f latin1 -t utf-8")


def test_the_encoding_of_csv_can_be_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path, rules = tmp_path / "rows.csv", tmp_path / "rules.yaml"
    rules.write_text(
        "table: rows\nkey: id\nrules:\n  - name: one_city\n    deny: t.größe = s.größe and t.city != s.city\n"
    )
    for encoding in ("latin-1", "utf-16", "utf-8"):
        path.write_text('id,größe,city\n1,5,Köln\n2,5,"Orléans,\n"\n', encoding)
        report = check(rules, path, encoding=encoding)
        assert report.results[0].violations == 1, encoding
        found = discover(path, encoding=encoding)
        assert found.columns == ("id", "größe", "city")
    path.write_text("id,größe,city\n1,5,Köln\n2,5,Trier\n", "latin-1")
    assert run(["check", str(rules), str(path), "--encoding", "latin-1", "--format", "csv"]) == 1
    assert "Köln" in capfd.readouterr().out
    assert run(["discover", str(path), "--encoding", "latin-1"]) == 0
    assert run(["discover", str(path)]) == 3
    assert run(["check", str(rules), str(path), "--encoding", "klingon"]) == 3
    assert "'klingon' is no encoding of text" in capfd.readouterr().err
    path.write_bytes(b"id,a,city\n1,5,x\n2,5,y\xff")
    with pytest.raises(WeeverError, match="the text is not ascii"):
        check(rules, path, encoding="ascii")
    path.write_bytes(b"id,a,city\n" + b"1,5,x\n" * 400_000 + b"2,5,\xff\n")
    with pytest.raises(WeeverError, match="the text is not ascii"):
        discover(path, encoding="ascii")


def test_another_separator_is_guessed(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("zip;city\n1;a\n")
    assert problem(path).endswith(
        "hint: the only column is 'zip;city'; are ';' the separators? CSV has commas, and .tsv files tabs"
    )


def test_a_pipe_and_a_link_to_nowhere_are_told(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe.csv", tmp_path / "link.csv"
    os.mkfifo(pipe)
    link.symlink_to("nowhere.csv")
    assert problem(pipe).startswith("DATA is not a file\n  hint: pipes and devices are not read")
    assert problem(link) == "DATA is a link that leads nowhere\n  hint: check what it should lead to"


def test_a_source_that_is_a_stream_is_named() -> None:
    file = read_rules_text("table: x\nsource: {kind: kafka, topic: x}\nrules:\n  - {name: a, unique: [a]}")
    with pytest.raises(DataError, match="the source of kind kafka has no `path:` that check can read"):
        check(file)


@pytest.mark.parametrize("threads", [1, 2])
def test_progress_names_a_rule_that_runs_and_counts_those_that_are_done(threads: int) -> None:
    told: list[tuple[str, int, int]] = []
    rules = [fd("a", "b", name="first"), parse_rule("t.a < s.a and t.b > s.b", name="second")]
    check(rules, pa.table({"a": [1, 2, 3], "b": [3, 1, 2]}), mode="count", threads=threads,
          progress=lambda *what: told.append(what))  # fmt: skip
    counted = [what for what in told if what[0].startswith("rule ")]
    assert [done for _, done, _ in counted] == sorted(done for _, done, _ in counted)
    assert counted[0][1:] == (0, 2)
    assert counted[-1][1:] == (2, 2)
    if threads == 1:
        assert [phase for phase, _, _ in counted] == ["rule second"] * 2 + ["rule first"] * 2

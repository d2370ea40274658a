"""Lines of rejected records: found by their text or cells, each record its own, and never a wrong one."""

from __future__ import annotations

import pytest

from weever_stream.feeds.lines import find_csv_lines, find_json_lines


def test_lines_of_json_are_found_by_their_text() -> None:
    content = b'\xef\xbb\xbf{"id": 1}\r\n\n{broken\n{"id": 2}\r{broken\n{\xff}\n  [1] \n{"sep": "\xe2\x80\xa8"}'
    records = ["{broken", "  [1] ", "{\ufffd}", '{"id": 1}', "{broken", "{broken", '{"sep": "\u2028"}', "[1]"]
    assert find_json_lines(content, records) == [3, 7, 6, 1, 5, None, 8, None]


def test_a_separator_of_lines_can_be_named() -> None:
    assert find_json_lines(b"{a\n};{b}", ["{b}", "{a\n}"], ";") == [2, 1]


CSV = (
    "id,name,note\r\n"
    '1,"two\r\nlines",x\r\n'  # lines 2 and 3
    '2,,""\r\n'
    '2,"",\r\n'
    "3, spaced ,y\r\n"
    "\r\n"
    '4,"a ""quoted"" word",z\r\n'
    "5,ragged\r\n"
    '2,,""\r\n'
)


@pytest.mark.parametrize(
    ("record", "line"),
    [
        ('1,"two\nlines",x', 2),  # as Spark gives a line break within a cell of a file with CR LF
        ('2,,""', 4),
        ('2,"",', 5),
        ('"2","",', 5),
        ("3, spaced ,y", 6),
        ('4,"a ""quoted"" word",z', 8),
        ("5,ragged", 9),
        ("5,ragged\r\n", 9),
        ("", None),
        ("6,nowhere,x", None),
    ],
)
def test_lines_of_csv_are_found_by_their_cells(record: str, line: int | None) -> None:
    assert find_csv_lines(CSV.encode(), [record]) == [line]


def test_equal_records_of_csv_get_a_line_each() -> None:
    assert find_csv_lines(CSV.encode(), ['2,,""', '2,,""', '2,,""']) == [4, 10, None]


def test_csv_is_read_with_the_options_of_the_source() -> None:
    content = 'id;name\n1;"a \\" quote"\n2;Zürich\n'.encode("latin-1")
    options = {"sep": ";", "escape": "\\", "encoding": "latin1"}
    assert find_csv_lines(content, ['1;"a "" quote"', "2;Zürich"], options) == [2, 3]
    assert find_csv_lines(content, ["2;x"], {"sep": "||"}) == [None]
    assert find_csv_lines(content, ["2;x"], {"encoding": "only-java-knows"}) == [None]

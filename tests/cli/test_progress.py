"""The lines of a running job."""

from __future__ import annotations

import pytest

from tests.observe.reports import report
from weever_stream.cli.progress import BatchLines


@pytest.mark.parametrize("as_json", [False, True])
def test_rejected_records_are_reported_with_their_place(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    lines = BatchLines(as_json=as_json, dead_letters="/lake/checkpoint/weever/rejects")
    lines.batch(report(7, rejected=3))
    lines.batch(report(8, rejected=0))
    printed = capsys.readouterr()
    assert "rejected" in printed.out.splitlines()[0]
    assert printed.err == "3 records could not be read; the dead letters in /lake/checkpoint/weever/rejects say why\n"

"""From `discover` to `check` and `run`, as docs/discover.md says. Catches a written file that a command refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pytest
from deltalake import write_deltalake

from weever_stream.cli import run
from weever_stream.discover import discover
from weever_stream.errors import DataError
from weever_stream.job.job import read_job

ROOT = Path(__file__).parents[2]


def pay() -> pa.Table:
    zips = [at * 7 % 10 for at in range(60)]
    return pa.table(
        {
            "rate": [at * 1.5 for at in range(60)],
            "zip": zips,
            "city": [f"c{zip_ // 2}" for zip_ in zips],
            "person": pa.array(range(60), pa.int64()),
        }
    )


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    write_deltalake(tmp_path / "pay", pay(), configuration={"delta.enableChangeDataFeed": "true"})
    return tmp_path / "pay"


def test_a_delta_table_gives_a_whole_job(lake: Path, capfd: pytest.CaptureFixture[str]) -> None:
    job = lake.parent / "job.yaml"
    assert run(["discover", str(lake), "-o", str(job)]) == 0
    assert "add" not in capfd.readouterr().err
    asked = read_job(job, {})
    assert asked.file.key == ("person",), "numbers with a fraction are no key"
    assert asked.source.path == str(lake)  # type: ignore[union-attr]
    assert asked.state.checkpoint == f"{lake}_checkpoint"
    assert run(["check", str(job), str(lake)]) == 0


def test_the_written_job_runs(lake: Path) -> None:
    job = lake.parent / "job.yaml"
    assert run(["discover", str(lake), "--columns", "zip,city", "--key", "person", "-o", str(job)]) == 0
    command = [sys.executable, "-m", "weever_stream.cli", "run", str(job), "--once"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "60 changes" in done.stdout


def test_other_data_gives_a_key_and_says_what_is_missing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data, rules = tmp_path / "pay.csv", tmp_path / "rules.yaml"
    pa.csv.write_csv(pay(), data)
    assert run(["discover", str(data), "-o", str(rules)]) == 0
    assert "for `weever run` add `source` and `state`" in capfd.readouterr().err
    assert run(["check", str(rules), str(data)]) == 0
    with rules.open("a") as out:
        out.write(f"source: {{kind: files, path: {tmp_path}}}\nstate: {{checkpoint: {tmp_path}/checkpoint}}\n")
    assert read_job(rules, {}).file.key == ("person",)


def test_a_key_that_is_asked_for_is_checked() -> None:
    table = pay().append_column("half", pa.array([None, *range(59)], pa.int64()))
    assert discover(table, key=["zip", "person"], columns=["city"]).key == ("zip", "person")
    assert discover(table, columns=["city"]).missing == ("key", "source", "state")
    for key, said in (
        (["zip"], "60 rows have 10 different values"),
        (["half"], "null in 1 row"),
        (["zp"], "no column"),
    ):
        with pytest.raises(DataError, match=said):
            discover(table, key=key)

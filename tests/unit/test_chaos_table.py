"""The table of the chaos tests keeps the rows of scenarios that were not run again."""

import pytest

from harness.chaos.recovery import Recovery
from harness.chaos.table import Row, update

OLD = """Before.
<!-- chaos -->
Measured on 2026-01-01 with three workers on one machine (4 cores, 8 GB of memory):

| scenario | lost steps | detection | restart | first new step |
| --- | ---: | ---: | ---: | ---: |
| SIGKILL of a worker | 12 | 0.1 s | 1.4 s | 13.9 s |
| soak: 3 kills in 2 min | 30 | 0.1 s | 1.4 s | 13.9 s |
<!-- /chaos -->
After.
"""
NEW = """Before.
<!-- chaos -->
Measured on 2026-02-02 with three workers on one machine (2 cores).
Measured before: SIGKILL of a worker:

| scenario | lost steps | detection | restart | first new step |
| --- | ---: | ---: | ---: | ---: |
| SIGKILL of a worker | 12 | 0.1 s | 1.4 s | 13.9 s |
| soak: 4 kills in 3 min | 41 | 8.1 s | 1.0 s | 20.0 s |
| SIGTERM to all | 0 | none | 2.0 s | 9.9 s |
<!-- /chaos -->
After.
"""


def test_new_rows_replace_old_ones_of_the_same_scenario(tmp_path):
    file = tmp_path / "survival.md"
    file.write_text(OLD)
    rows = [
        Row("soak: 4 kills in 3 min", 41, Recovery(8.06, 0.99, 20.0)),
        Row("SIGTERM to all", 0, Recovery(None, 2.0, 9.9)),
    ]
    update(file, rows, "2026-02-02", "2 cores")
    assert file.read_text() == NEW


def test_names_no_older_row_where_all_were_measured(tmp_path):
    file = tmp_path / "survival.md"
    file.write_text(OLD)
    rows = [
        Row(scenario, 1, Recovery(None, None, None)) for scenario in ("SIGKILL of a worker", "soak")
    ]
    update(file, rows, "2026-02-02", "2 cores")
    assert "Measured on 2026-02-02 with three workers on one machine (2 cores):\n\n" in (
        file.read_text()
    )


def test_refuses_a_file_without_a_place_for_it(tmp_path):
    file = tmp_path / "survival.md"
    file.write_text("nothing\n")
    with pytest.raises(AssertionError, match="has no <!-- chaos -->"):
        update(file, [], "2026-02-02", "2 cores")

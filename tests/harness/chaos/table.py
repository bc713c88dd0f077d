"""The table of docs/operations.md: a row for each scenario, as it was measured last."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from harness.chaos.recovery import Recovery

BEGIN, END = "<!-- chaos -->", "<!-- /chaos -->"
HEAD = (
    "| scenario | lost steps | detection | restart | first new step |",
    "| --- | ---: | ---: | ---: | ---: |",
)
MEMINFO = Path("/proc/meminfo")


@dataclass(frozen=True)
class Row:
    """What was measured of one scenario; times in seconds.

    What stands before a colon in `scenario` names it, what follows may change.
    """

    scenario: str
    lost_steps: int
    recovery: Recovery

    def __str__(self) -> str:
        """Return it as the table has it."""
        times = (self.recovery.detection, self.recovery.restart, self.recovery.first_step)
        cells = [self.scenario, f"{self.lost_steps}", *map(_seconds, times)]
        return f"| {' | '.join(cells)} |"


def _seconds(time: float | None) -> str:
    return "none" if time is None else f"{time:.1f} s"


def update(file: Path, rows: Sequence[Row], today: str, machine: str) -> None:
    """Write the rows into the file's table; a scenario without a new row keeps its old one.

    Raises:
        AssertionError: the file has no place for the table.
    """
    before, begin, rest = file.read_text().partition(BEGIN)
    old, end, after = rest.partition(END)
    assert end, f"{file} has no {BEGIN} … {END}"
    lines = _merged(old, rows)
    measured = f"Measured on {today} with three workers on one machine ({machine}):"
    table = "\n".join([begin, measured, "", *HEAD, *lines, end])
    file.write_text(before + table + after)


def _merged(old: str, rows: Sequence[Row]) -> list[str]:
    lines = {_scenario(line): line for line in re.findall(r"(?m)^\| .*$", old) if line not in HEAD}
    lines |= {_scenario(str(row)): str(row) for row in rows}
    return list(lines.values())


def _scenario(line: str) -> str:
    return line.split("|")[1].partition(":")[0].strip()


def today() -> str:
    """Return the date."""
    return f"{datetime.now(UTC):%Y-%m-%d}"


def this_machine() -> str:
    """Return what the times depend on: cores and memory."""
    kilobytes = int(re.search(r"MemTotal:\s+(\d+)", MEMINFO.read_text())[1])
    return f"{os.cpu_count()} cores, {kilobytes / 2**20:.0f} GB of memory"

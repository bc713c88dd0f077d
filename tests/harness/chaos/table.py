"""The table of docs/explanation/survival.md, with the last measurement of each scenario."""

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
    """The measurement of one scenario, with times in seconds.

    The text before a colon in `scenario` identifies it. The text after the colon may change.
    """

    scenario: str
    lost_steps: int
    recovery: Recovery

    def __str__(self) -> str:
        """Return it as a row of the table."""
        times = (self.recovery.detection, self.recovery.restart, self.recovery.first_step)
        cells = [self.scenario, f"{self.lost_steps}", *map(_seconds, times)]
        return f"| {' | '.join(cells)} |"


def _seconds(time: float | None) -> str:
    return "none" if time is None else f"{time:.1f} s"


def update(file: Path, rows: Sequence[Row], today: str, machine: str) -> None:
    """Write the rows into the file's table. A scenario without a new row keeps its old row.

    The line above the table names the scenarios that were measured earlier.

    Raises:
        AssertionError: the file has no place for the table.
    """
    before, begin, rest = file.read_text().partition(BEGIN)
    old, end, after = rest.partition(END)
    assert end, f"{file} has no {BEGIN} … {END}"
    found = {_scenario(str(row)): str(row) for row in rows}
    known = {_scenario(line): line for line in re.findall(r"(?m)^\| .*$", old) if line not in HEAD}
    measured = f"Measured on {today} with three workers on one machine ({machine})"
    if older := [scenario for scenario in known if scenario not in found]:
        measured += f".\nMeasured before: {', '.join(older)}"
    table = "\n".join([begin, f"{measured}:", "", *HEAD, *(known | found).values(), end])
    file.write_text(before + table + after)


def _scenario(line: str) -> str:
    return line.split("|")[1].partition(":")[0].strip()


def today() -> str:
    """Return the date."""
    return f"{datetime.now(UTC):%Y-%m-%d}"


def this_machine() -> str:
    """Return facts that affect the times: cores, memory, and the load, including the workers'."""
    kilobytes = int(re.search(r"MemTotal:\s+(\d+)", MEMINFO.read_text())[1])
    load = os.getloadavg()[-1]
    return (
        f"{os.cpu_count()} cores, {kilobytes / 2**20:.0f} GB of memory; "
        f"load average {load:.0f} in the last 15 minutes"
    )

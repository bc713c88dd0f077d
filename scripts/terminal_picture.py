"""Draws docs/pictures/terminal.svg: a run that loses a worker and ends with the same weights.

`.venv/bin/python scripts/terminal_picture.py` trains twice on this machine, about a minute and a
half in all, and kills the container of worker-1 half-way through the second run. The last commands
compare the weights. The picture shows the output of these commands. Many lines are omitted; a mark
replaces more than GAP of them. Long lines are cut at the right. `--again` draws the last record
again.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from rich.console import Console
from rich.text import Text

REPOSITORY = Path(__file__).resolve().parent.parent
PICTURE = REPOSITORY / "docs/pictures/terminal.svg"
RECORD = REPOSITORY / ".build/terminal.txt"
PROJECT = "demo"
"""Another name than the project's, which a running cluster may use."""
CONTAINER = f"{PROJECT}-worker-1-1"
KILL_AT = re.compile(r"worker-0 \| .* epoch +25/50 +step")
COLUMNS = 118
GAP = 3
LEFT_OUT = "    …"

SHOWN = re.compile(
    r"^\$ "
    r"|worker\(s\)"
    r"|^cluster-trainer: worker-1 (was killed|is started again)"
    r"|workers are here and agree"
    r"|worker-0 \| .* epoch +(1|2|24|25|26|27|49|50)/50 +step"
    r"|worker-[01] \| .* (restart \d|resuming|saved the model|waiting for 1 of|was killed)"
    r"|worker-[01] \| .* (was lost|are here again)"
    r"|worker-0 \| .* ERROR failed"
    r"|^cluster-trainer: done|^  test_accuracy"
    r"|sha256"
)
STYLES = (
    (re.compile(r"^\$ .*"), "bold bright_white"),
    (re.compile(r"^\$ docker kill .*"), "bold bright_red"),
    (re.compile(r"^worker-0 \|"), "cyan"),
    (re.compile(r"^worker-1 \|"), "magenta"),
    (re.compile(r"\d\d:\d\d:\d\d"), "bright_black"),
    (re.compile(r"WARNING|ERROR"), "bold yellow"),
    (re.compile(r"resuming from step \d+|are here and agree|are here again"), "bold green"),
    (re.compile(r"[0-9a-f]{64}"), "bold green"),
    (re.compile(r"^    …$"), "bright_black"),
)
# Rich's own template loads a font from another server, which a picture in a README must not.
TEMPLATE = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" \
xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="title description">
<title id="title">A run that survives a kill</title>
<desc id="description">Two workers train. The container of worker-1 is killed, and restarted.
Both meet again, resume from the newest checkpoint, and end with the weights of an undisturbed run,
bit for bit.</desc>
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; white-space: pre; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def record(environ: Mapping[str, str], folder: Path) -> Iterator[str]:
    """Yield the lines of a terminal in which a worker of a run is killed, and the run ends."""
    settings = {**environ, "COMPOSE_PROJECT_NAME": PROJECT, "RUNS_DIR": str(folder / "runs")}
    list(_output(["make", "up-local", "NAME=undisturbed"], settings, REPOSITORY))
    killed = False
    up = ["make", "up-local", "NAME=killed"]
    yield "$ " + " ".join(up)
    for line in _output(up, settings, REPOSITORY):
        yield line
        if not killed and KILL_AT.search(line):
            killed = True
            yield f"$ docker kill {CONTAINER}"
            subprocess.run(["docker", "kill", CONTAINER], check=True, stdout=subprocess.DEVNULL)
    compare = "grep -o 'sha256.*' runs/{undisturbed,killed}/worker-0/result.json"
    yield f"$ {compare}"
    yield from _output(["bash", "-c", compare], settings, folder)


def _output(command: list[str], environ: Mapping[str, str], folder: Path) -> Iterator[str]:
    """Yield the output lines of a command; raise CalledProcessError unless it exits with 0."""
    with subprocess.Popen(
        command,
        cwd=folder,
        env=dict(environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    ) as process:
        assert process.stdout  # noqa: S101 -- it was requested
        for line in process.stdout:
            print(line, end="", flush=True)
            yield line.rstrip("\n")
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


def chosen(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines for the picture, and a mark where more than GAP lines are omitted."""
    left_out = 0
    for line in lines:
        if not SHOWN.search(line):
            left_out += 1
            continue
        if left_out > GAP:
            yield LEFT_OUT
        left_out = 0
        yield line


def draw(lines: Iterable[str]) -> str:
    """Return the lines as an SVG picture of a terminal."""
    console = Console(width=COLUMNS, record=True, file=io.StringIO())
    for line in lines:
        text = Text(line)
        for pattern, style in STYLES:
            text.highlight_regex(pattern, style)
        console.print(text, no_wrap=True, overflow="ellipsis")
    return console.export_svg(title="", code_format=TEMPLATE, unique_id="terminal")


def main() -> None:
    """Record a run, or take the last record, and draw it."""
    if sys.argv[1:] != ["--again"]:
        with tempfile.TemporaryDirectory() as name:
            lines = list(record(os.environ, Path(name)))
        RECORD.parent.mkdir(exist_ok=True)
        RECORD.write_text("\n".join(lines) + "\n", encoding="utf-8")
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(
        draw(chosen(RECORD.read_text(encoding="utf-8").splitlines())), encoding="utf-8"
    )


if __name__ == "__main__":
    main()

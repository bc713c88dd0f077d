"""Start scripts, each in its own process; see forks.py."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import forks


@dataclass(frozen=True)
class Started:
    """The end of a start: its exit code, negative for a signal, and its whole output."""

    code: int
    output: str

    @property
    def told(self):
        """The values that the script printed as `TOLD {json}`."""
        lines = [line for line in self.output.splitlines() if line.startswith("TOLD ")]
        return [json.loads(line.removeprefix("TOLD ")) for line in lines]


class Starts:
    """Starts scripts, one after the other, as an entrypoint does."""

    def start(self, script, *arguments, run_dir, start="", **environ):
        """Run a script to its end; `start` is its START_ID, a new one by default.

        Its end marks count only after exit code 0, as with the entrypoint.
        """
        folder = Path(script).parent
        output, marks = folder / "output.txt", folder / "marks"
        marks.unlink(missing_ok=True)
        environ = {
            **os.environ,
            "TRAINER_RUN_DIR": str(run_dir),
            "START_ID": start or os.urandom(8).hex(),
            "END_MARKS": str(marks),
            "TRAINER_CHECKPOINT_STEPS": "1",
            "PROGRESS_FILE": str(folder / f"{os.urandom(4).hex()}.progress"),
            **environ,
        }
        code = forks.start([script, *arguments], environ, output, folder=folder).wait()
        if code == 0 and marks.exists():
            for mark in filter(Path.exists, map(Path, marks.read_text().split())):
                mark.rename(mark.with_suffix(""))
        return Started(code, output.read_text(errors="replace"))

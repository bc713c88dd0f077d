"""Starts of a script, each in a process of its own that has TensorFlow imported already.

A process that imports Keras once, and runs no operation, forks for each start: so a start takes a
fraction of a second. It reads one JSON object a line: `script`, `arguments`, `environ`, `folder`,
`output`; and answers with the exit code, negative for a signal.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SERVER = """
import json, os, runpy, sys
import keras, numpy, tensorflow

while line := sys.stdin.readline():
    given = json.loads(line)
    child = os.fork()
    if child == 0:
        numpy.random.seed()  # else all forks draw the same
        output = os.open(given["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ.update(given["environ"])
        os.chdir(given["folder"])
        sys.path[0] = os.path.dirname(given["script"])
        sys.argv = [given["script"], *given["arguments"]]
        try:
            runpy.run_path(given["script"], run_name="__main__")
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException as error:
            sys.excepthook(type(error), error, error.__traceback__)
            sys.last_value, code = error, 1
        import atexit
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@dataclass(frozen=True)
class Started:
    """How a start has ended: its exit code, negative for a signal, and all that it printed."""

    code: int
    output: str

    @property
    def told(self):
        """What the script printed as `TOLD {json}`."""
        lines = [line for line in self.output.splitlines() if line.startswith("TOLD ")]
        return [json.loads(line.removeprefix("TOLD ")) for line in lines]


class Starts:
    """Starts scripts, one after the other, as an entrypoint does."""

    def __init__(self):
        self._server = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, script, *arguments, run_dir, start="", **environ):
        """Run a script to its end; `start` is its START_ID, a new one unless it is given.

        Its marks of an end count as the entrypoint lets them: after code 0.
        """
        folder = Path(script).parent
        output, marks = folder / "output.txt", folder / "marks"
        marks.unlink(missing_ok=True)
        given = {
            "script": str(script),
            "arguments": arguments,
            "folder": str(folder),
            "output": str(output),
            "environ": {
                "TRAINER_RUN_DIR": str(run_dir),
                "START_ID": start or os.urandom(8).hex(),
                "END_MARKS": str(marks),
                "TRAINER_CHECKPOINT_STEPS": "1",
                "PROGRESS_FILE": str(folder / f"{os.urandom(4).hex()}.progress"),
                **environ,
            },
        }
        self._server.stdin.write(json.dumps(given) + "\n")
        self._server.stdin.flush()
        code = int(self._server.stdout.readline())
        if code == 0 and marks.exists():
            for mark in filter(Path.exists, map(Path, marks.read_text().split())):
                mark.rename(mark.with_suffix(""))
        return Started(code, output.read_text(errors="replace"))

    def close(self):
        """End the process that forks."""
        self._server.stdin.close()
        self._server.wait(60)

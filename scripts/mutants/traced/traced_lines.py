"""Records which lines of the product each test runs, in every process that a test starts.

It uses only the standard library, because the image imports it, too. A `.pth` file lets each
process of the image's Python and of the tests' Python import it first, whatever its environment.
traced_tests.py reports which test runs. A line is written as soon as it is first seen, because
tests kill processes.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType
    from typing import Any

PRODUCT = ("entrypoint", "trainer", "compose")
TEST, FILE = ">", "@"
"""The prefix of a line that names the test, or the file, for the lines below it."""

tracer: Tracer | None = None


def begin(root: str, folder: str) -> None:
    """Record the lines of the product in `root`, in files of `folder`."""
    global tracer  # noqa: PLW0603 one for each process, like sys.settrace
    if tracer is not None:  # if a folder has two names, Python reads its `.pth` file twice
        return
    tracer = Tracer(root, folder)
    tracer.begin()


class Tracer:
    """Traces all threads of a Python process."""

    def __init__(self, root: str, folder: str) -> None:
        self._prefixes = tuple(f"{root}/{package}/" for package in PRODUCT)
        self._cut = len(root) + 1
        self.folder = Path(folder)
        self._notes = -1
        self._file = ""
        self._is_ours: dict[str, bool] = {}
        self._unseen: dict[int, tuple[set[int], Callable[..., Any]]] = {}
        self._codes: list[CodeType] = []

    def begin(self) -> None:
        """Begin with the test that runs in this process or in one of its parents."""
        with contextlib.suppress(OSError):  # a process may lack the right to write there
            name = f"lines-{os.getpid()}-{time.time_ns()}"
            self._notes = os.open(self.folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            self.note_test(_test_above(self.folder))
            os.register_at_fork(after_in_child=self._begin_in_child)
            threading.settrace(self._call)
            sys.settrace(self._call)

    def _begin_in_child(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._notes)
            name = f"lines-{os.getpid()}-{time.time_ns()}"
            self._notes = os.open(self.folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            self.note_test(_test_above(self.folder))

    def note_test(self, name: str) -> None:
        """Attribute the following lines to another test: all lines are unseen again."""
        self._unseen.clear()
        self._file = ""
        self._write(f"{TEST}{name}\n")

    def _call(self, frame: FrameType, _event: str, _argument: object) -> Callable[..., Any] | None:
        code = frame.f_code
        is_ours = self._is_ours.get(code.co_filename)
        if is_ours is None:
            is_ours = code.co_filename.startswith(self._prefixes)
            self._is_ours[code.co_filename] = is_ours
        if not is_ours:
            return None
        unseen, see = self._unseen.get(id(code)) or self._begin_code(code)
        return see if unseen else None

    def _begin_code(self, code: CodeType) -> tuple[set[int], Callable[..., Any]]:
        self._codes.append(code)  # its id stays its own
        unseen = {line for _, _, line in code.co_lines() if line}
        path = code.co_filename[self._cut :]

        def see(frame: FrameType, _event: str, _argument: object) -> Callable[..., Any]:
            line = frame.f_lineno
            if line in unseen:
                unseen.discard(line)
                self._note_line(path, line)
            return see

        self._unseen[id(code)] = unseen, see
        return unseen, see

    def _note_line(self, path: str, line: int) -> None:
        file = "" if path == self._file else f"{FILE}{path}\n"
        self._file = path
        self._write(f"{file}{line}\n")

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._notes, text.encode())


def _test_above(folder: Path) -> str:
    """Return the test of the nearest parent process; "" if there is none."""
    process = os.getpid()
    while process > 1:
        with contextlib.suppress(OSError):
            return (folder / f"test-{process}").read_text()
        try:
            stat = Path(f"/proc/{process}/stat").read_text()
        except OSError:
            return ""
        process = int(stat.rpartition(")")[2].split()[1])
    return ""

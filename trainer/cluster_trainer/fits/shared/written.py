"""Notes which files this process's callbacks write, whatever they write them with.

What opens a file in Python is told to `sys.addaudithook`; h5py and TensorFlow, which open files
themselves, are asked where Keras calls them. TensorBoard's folder is known by its callback.
"""

import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, wraps
from pathlib import Path
from typing import Any

import h5py
import keras

WRITES = os.O_WRONLY | os.O_RDWR
WORKING_FOLDER = "workspace"  # in the worker's, as the entrypoint makes it
NOT_RESULTS = ("__pycache__", ".cache")


class Written:
    """The files that one thread has written; see `named_alike`.

    Args:
        own: the folder in which a script runs whose own folder is read-only.

    Attributes:
        files: in the order in which they were opened first.
        is_noting: whether what is opened now is noted.
    """

    def __init__(self, own: Path) -> None:
        self._own = own
        self.files: dict[Path, None] = {}
        self.is_noting = False
        self._thread = threading.get_ident()

    def note(self, name: Any) -> None:
        """Note a file or a folder, if it is this thread that writes it, and writes a result."""
        if not self.is_noting or threading.get_ident() != self._thread:
            return
        if isinstance(name, (str, bytes, os.PathLike)):
            path = named_alike(Path(os.fsdecode(name)), self._own)
            if not {*NOT_RESULTS}.intersection(path.parts):
                self.files[path] = None

    def has(self, file: Path) -> bool:
        """Tell whether a file was noted, or a folder that it is in."""
        return any(one in self.files for one in (file, *file.parents))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Note nothing of what is done inside."""
        before, self.is_noting = self.is_noting, False
        try:
            yield
        finally:
            self.is_noting = before


def named_alike(path: Path, own: Path) -> Path:
    """Return a path as all workers know it: relative, where it is in a folder of each worker's own.

    Such are the working directory and `own`, if the working directory is in there.
    """
    here = Path.cwd()
    if path.is_relative_to(here):
        return path.relative_to(here)
    if path.is_relative_to(own) and here.is_relative_to(own):
        return Path(os.path.relpath(path, here))
    return path


_written: list[Written] = []  # the present fit's, if anything


def use(written: Written | None) -> None:
    """Have what callbacks write noted there; None: nowhere."""
    if written:
        _listen()
    _written[:] = [written] if written else []


def files_in(path: Path) -> Iterator[Path]:
    """Yield a file, or those in a folder, however deep."""
    if not path.is_dir():
        yield path
        return
    for folder, _, names in sorted(os.walk(path)):
        yield from (Path(folder, name) for name in sorted(names))


@cache
def _listen() -> None:
    """Begin to listen, once in a process: an audit hook stays."""
    sys.addaudithook(_audited)
    h5py.File.__init__ = _noting(h5py.File.__init__)
    keras.Model.export = _noting(keras.Model.export)


def _audited(event: str, arguments: tuple[Any, ...]) -> None:
    if not _written:
        return
    with suppress(Exception):  # else what is audited would fail
        if event == "open" and arguments[2] & WRITES:
            _written[0].note(arguments[0])
        elif event == "os.rename":
            _written[0].note(arguments[1])


def _noting(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that notes its first argument, a file or a folder that it writes."""
    signature = inspect.signature(method)

    @wraps(method)
    def note_and_do(*arguments: Any, **keywords: Any) -> Any:
        if _written:
            with suppress(TypeError):  # which the method raises itself
                _, name, *_ = (given := signature.bind(*arguments, **keywords).arguments).values()
                if not isinstance(arguments[0], h5py.File) or given.get("mode", "r") != "r":
                    _written[0].note(name)
        return method(*arguments, **keywords)

    return note_and_do

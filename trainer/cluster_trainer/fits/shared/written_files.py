"""Notes the files that this process's callbacks write, with any library.

`sys.addaudithook` reports files that Python opens. h5py and TensorFlow open files themselves, so
`h5py.File` and `keras.Model.export` are wrapped, as long as the process lives. TensorBoard's folder
is known from its callback.
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
WORKING_FOLDER = "workspace"  # created by the entrypoint in the worker's folder
NOT_RESULTS = ("__pycache__", ".cache")


class Written:
    """The files that one thread has written; see `named_alike`.

    Args:
        own: the folder in which a script runs if its own folder is read-only.

    Attributes:
        files: the files, in the order in which they were first opened.
        is_noting: whether files that are opened now are noted.
    """

    def __init__(self, own: Path) -> None:
        self._own = own
        self.files: dict[Path, None] = {}
        self.is_noting = False
        self._thread = threading.get_ident()

    def note(self, name: Any) -> None:
        """Note a file or a folder if this thread writes it as a result."""
        if not self.is_noting or threading.get_ident() != self._thread:
            return
        if isinstance(name, (str, bytes, os.PathLike)):
            path = named_alike(Path(os.fsdecode(name)), self._own)
            if not {*NOT_RESULTS}.intersection(path.parts):
                self.files[path] = None

    def has(self, file: Path) -> bool:
        """Tell whether a file, or a folder above it, was noted."""
        return any(one in self.files for one in (file, *file.parents))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Note nothing in the context."""
        before, self.is_noting = self.is_noting, False
        try:
            yield
        finally:
            self.is_noting = before


def named_alike(path: Path, own: Path) -> Path:
    """Return a path that is the same on all workers: relative in folders that each worker has.

    These folders are the working directory, and `own` if it contains the working directory.
    """
    here = Path.cwd()
    if path.is_relative_to(here):
        return path.relative_to(here)
    if path.is_relative_to(own) and here.is_relative_to(own):
        return Path(os.path.relpath(path, here))
    return path


_written: list[Written] = []  # the present fit's, if any


def use(written: Written | None) -> None:
    """Note the files that callbacks write in `written`; None: note nothing."""
    if written:
        _listen()
    _written[:] = [written] if written else []


def files_in(path: Path) -> Iterator[Path]:
    """Yield a file, or the files in a folder, at any depth."""
    if not path.is_dir():
        yield path
        return
    for folder, _, names in sorted(os.walk(path)):
        yield from (Path(folder, name) for name in sorted(names))


@cache
def _listen() -> None:
    """Begin to listen, once in a process, because an audit hook cannot be removed."""
    sys.addaudithook(_audited)
    h5py.File.__init__ = _noting(h5py.File.__init__)
    keras.Model.export = _noting(keras.Model.export)


def _audited(event: str, arguments: tuple[Any, ...]) -> None:
    if not _written:
        return
    with suppress(Exception):  # otherwise the audited call would fail
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
            with suppress(TypeError):  # the method itself raises this error
                _, name, *_ = (given := signature.bind(*arguments, **keywords).arguments).values()
                if not isinstance(arguments[0], h5py.File) or given.get("mode", "r") != "r":
                    _written[0].note(name)
        return method(*arguments, **keywords)

    return note_and_do

"""Reports the progress of the preparation of a data set."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PROGRESS_SECONDS = 2.0


@contextmanager
def progress(builder: Any, downloads: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Report the progress of TFDS every PROGRESS_SECONDS; TFDS itself only has progress bars.

    Within the context `builder` prepares its set, and downloads its files to `downloads`.
    """
    ended, before = threading.Event(), _bytes_below(downloads)
    features, number = builder.info.features, 0

    def count_one(example: Any) -> Any:
        nonlocal number
        number += 1
        return type(features).encode_example(features, example)

    def watch() -> None:
        said = ""
        while not ended.wait(PROGRESS_SECONDS):
            megabytes = (_bytes_below(downloads) - before) / 1e6
            how_far = f"{megabytes:,.0f} MB downloaded, {number:,} examples made"
            if how_far != said:
                say(how_far)
            said = how_far

    thread = threading.Thread(target=watch, name="progress", daemon=True)
    thread.start()
    features.encode_example = count_one  # each example passes through it once
    try:
        yield
    finally:
        del features.encode_example
        ended.set()
        thread.join()


def _bytes_below(folder: Path) -> int:
    size = 0
    for file in folder.glob("**/*"):
        with suppress(OSError):  # renamed or removed meanwhile
            size += file.lstat().st_size
    return size

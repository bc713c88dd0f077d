"""The code that a worker runs: the text of the script's files, and the installed packages.

Workers compare theirs, because an old copy on one machine would train along without a word. A fit
that resumes compares its script's files with those of its beginning.
"""

import logging
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import ModuleType

from cluster_trainer.installed import is_installed

MOST_FILES = 200
"""The largest number of script files whose text is compared."""
DIGEST_LENGTH = 12
SHOWN = 5
FILE, PACKAGE = "file", "package"
NOT_THERE = "not installed"
log = logging.getLogger("trainer")


def digest_of(text: str) -> str:
    """Return a digest of a text, which does not reveal it."""
    return sha256(text.encode(errors="surrogateescape")).hexdigest()[:DIGEST_LENGTH]


def texts() -> Mapping[str, str]:
    """Return a digest of each file of the script: its own, and modules in its folder."""
    return _read_texts(len(sys.modules))


def code() -> dict[str, str]:
    """Return what workers compare: a digest of each file of the script, each package's version."""
    files = {f"{FILE} {name}": text for name, text in texts().items()}
    return files | {f"{PACKAGE} {name}": version for name, version in _packages().items()}


def differences(everyone: Sequence[Mapping[str, str]], names: Sequence[str]) -> list[str]:
    """Return what differs from the first worker's code, a text for each other worker.

    A file that only some workers have loaded is no difference: the chief may plot, for example.

    Args:
        everyone: the workers' `code`, by rank.
        names: the workers' own, by rank.
    """
    first, *others = everyone
    told = []
    for name, mine in zip(names[1:], others, strict=True):
        found = [*_other_files(mine, first), *_other_packages(mine, first)]
        if found:
            more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            told.append(f"{name}: {', '.join(found[:SHOWN])}{more}")
    return told


def say_differences(everyone: Sequence[Mapping[str, str]], names: Sequence[str]) -> None:
    """Warn, once, of workers that run other code than the first one."""
    if everyone and (told := differences(everyone, names)):
        _warn("; ".join(told), names[0])


@cache
def _warn(told: str, first: str) -> None:
    log.warning(
        "the workers do not run the same code. Different from %s: %s. All train one model "
        "together, so an old copy changes the training. Copy the files to all machines again, or "
        "install the same packages there",
        *(first, told),
    )


def _other_files(mine: Mapping[str, str], first: Mapping[str, str]) -> list[str]:
    both = sorted(mine.keys() & first.keys())
    files = [name for name in both if name.startswith(f"{FILE} ")]
    return [name.removeprefix(f"{FILE} ") for name in files if mine[name] != first[name]]


def _other_packages(mine: Mapping[str, str], first: Mapping[str, str]) -> list[str]:
    all_names = sorted(mine.keys() | first.keys())
    packages = [name for name in all_names if name.startswith(f"{PACKAGE} ")]
    pairs = [(name, mine.get(name, NOT_THERE), first.get(name, NOT_THERE)) for name in packages]
    return [
        f"{name.removeprefix(f'{PACKAGE} ')} {own} (not {other})"
        for name, own, other in pairs
        if own != other
    ]


@cache
def _read_texts(modules: int) -> Mapping[str, str]:
    del modules
    main = Path(sys.argv[0] or ".").absolute()
    found = {}
    for file in _files(main):
        try:
            text = file.read_text(errors="surrogateescape")
        except OSError:
            continue
        found[str(file.relative_to(main.parent))] = digest_of(text)
    return found


def _files(main: Path) -> list[Path]:
    loaded = [vars(module).get("__file__") for module in _modules()]
    files = {Path(one).absolute() for one in loaded if isinstance(one, str) and one}
    own = [one for one in files if main.parent in one.parents and not is_installed(str(one))]
    found = sorted(own)[:MOST_FILES]
    return [main, *found] if main.is_file() and main not in found else found


def _modules() -> list[ModuleType]:
    return [one for one in [*sys.modules.values()] if isinstance(one, ModuleType)]


@cache
def _packages() -> Mapping[str, str]:
    """Return the version of each installed package, by the names of the folders that tell it.

    `importlib.metadata` opens a file for each package, which takes a hundred times as long.
    """
    found: dict[str, str] = {}
    for folder in sys.path:
        for one in sorted(Path(folder or ".").glob("*.dist-info")):
            name, _, version = one.name.removesuffix(".dist-info").partition("-")
            found.setdefault(name.lower(), version)
    return found

"""The code that a worker runs: the script's files, installed packages, and settings of libraries.

Workers compare it, because otherwise an old copy or another `keras.json` on one machine would go
unnoticed. A fit that resumes compares its script's files with those of its beginning.
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
FILE, PACKAGE, SETTING = "file", "package", "setting"
NOT_THERE: Mapping[str, str] = {PACKAGE: "not installed", SETTING: "not set"}
log = logging.getLogger("trainer")


def digest_of(text: str) -> str:
    """Return a digest of a text, which does not reveal it."""
    return sha256(text.encode(errors="surrogateescape")).hexdigest()[:DIGEST_LENGTH]


def texts() -> Mapping[str, str]:
    """Return a digest of each file of the script: its own, and modules in its folder."""
    return _read_texts(len(sys.modules))


def code(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the facts about the code that workers compare: name -> value.

    They are a digest of each file of the script, the version of each package, and the settings of
    libraries (library_settings.py).
    """
    parts = {FILE: texts(), PACKAGE: _packages(), SETTING: settings}
    return {
        f"{kind} {name}": value for kind, found in parts.items() for name, value in found.items()
    }


def differences(everyone: Sequence[Mapping[str, str]], names: Sequence[str]) -> list[str]:
    """Return a text for each worker whose code differs from the first worker's.

    A file that only some workers have loaded is no difference: the chief may plot, for example.

    Args:
        everyone: the workers' `code`, by rank.
        names: the workers' names, by rank.
    """
    first, *others = everyone
    told = []
    for name, mine in zip(names[1:], others, strict=True):
        found = [*_other_files(mine, first)]
        for kind in NOT_THERE:
            pairs = _other_values(kind, mine, first)
            found += [f"{what} {own} ({names[0]}: {its})" for what, own, its in pairs]
        if found:
            more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            told.append(f"{name}: {', '.join(found[:SHOWN])}{more}")
    return told


def say_differences(everyone: Sequence[Mapping[str, str]], names: Sequence[str]) -> None:
    """Warn once of workers whose code differs from the first worker's."""
    if everyone and (told := differences(everyone, names)):
        _warn("; ".join(told), names[0])


@cache
def _warn(told: str, first: str) -> None:
    log.warning(
        "the workers do not run the same code. Different from %s: %s. All train one model "
        "together, so an old copy or another setting changes the training. Copy the files to all "
        "machines again, install the same packages there, or set the same there",
        *(first, told),
    )


def _other_files(mine: Mapping[str, str], first: Mapping[str, str]) -> list[str]:
    both = sorted(mine.keys() & first.keys())
    files = [name for name in both if name.startswith(f"{FILE} ")]
    return [name.removeprefix(f"{FILE} ") for name in files if mine[name] != first[name]]


def _other_values(
    kind: str, mine: Mapping[str, str], first: Mapping[str, str]
) -> list[tuple[str, str, str]]:
    """Return the name of each value that differs, this worker's value, and the first one's."""
    names = sorted(one for one in {*mine, *first} if one.startswith(f"{kind} "))
    absent = NOT_THERE[kind]
    found = [
        (name.removeprefix(f"{kind} "), mine.get(name, absent), first.get(name, absent))
        for name in names
    ]
    return [one for one in found if one[1] != one[2]]


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

"""Wheels for tests: written by the test, or downloaded for the image's Python."""

import platform
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
FROM_LOCK = ("--quiet", "--no-deps", "--require-hashes")
FOR_IMAGE = ("--python-version", "3.11", "--only-binary", ":all:")


def download_wheels(lock: str) -> Path:
    """Return the folder with the wheels of requirements/`lock`.txt, for the image's Python.

    They are downloaded again only if the lock has changed.
    """
    of_libc = [f"manylinux_2_{minor}_{platform.machine()}" for minor in (36, 28, 24, 17)]
    platforms = [*of_libc, f"manylinux2014_{platform.machine()}", "any"]
    options = [part for name in platforms for part in ("--platform", name)]
    return _keep(lock, [sys.executable, "-m", "pip", "download", *options, "--dest"])


def install_packages(lock: str) -> Path:
    """Return the folder with the packages of requirements/`lock`.txt, for the image's Python.

    They are installed again only if the lock has changed.
    """
    # Unlike pip, uv evaluates the lock's markers for the image's Python, not for this one.
    uv = str(Path(sys.executable).with_name("uv"))
    target = f"{platform.machine()}-manylinux_2_36"
    return _keep(lock, [uv, "pip", "install", "--python-platform", target, "--target"])


def _keep(lock: str, command: Sequence[str]) -> Path:
    source = ROOT / f"requirements/{lock}.txt"
    folder = ROOT / f".build/{lock}"
    stamp = folder / source.name
    if not stamp.exists() or stamp.read_bytes() != source.read_bytes():
        options = [*FROM_LOCK, *FOR_IMAGE, "--requirement", source]
        subprocess.run([*command, folder, *options], check=True)
        stamp.write_bytes(source.read_bytes())
    return folder


def write_wheel(
    folder: Path,
    name: str,
    modules: Mapping[str, str],
    version: str = "1.0",
    requires: Sequence[str] = (),
) -> Path:
    """Write a pure-Python wheel of `modules`, path -> text, into the folder; return its path.

    The wheel follows the format (https://packaging.python.org/specifications/binary-distribution-format),
    except that RECORD has no digests, which pip does not need.
    """
    needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
    info = f"{name}-{version}.dist-info"
    files = {
        **modules,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    folder.mkdir(exist_ok=True)
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(path, text)
    return wheel

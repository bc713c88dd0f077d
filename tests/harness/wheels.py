"""Wheels that a test makes itself, so that installing them takes no network."""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def write_wheel(
    folder: Path,
    name: str,
    modules: Mapping[str, str],
    version: str = "1.0",
    requires: Sequence[str] = (),
) -> Path:
    """Write a pure-Python wheel of `modules`, path -> text, into the folder; return its path.

    It is what the format asks for (https://packaging.python.org/specifications/binary-distribution-format),
    but for the digests in RECORD, which pip does not need.
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

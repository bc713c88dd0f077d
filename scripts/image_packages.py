"""Describes the image's packages for its pip: `image_packages.py FOLDER`.

constraints.txt has each package's version. Beside it, each package has a dist-info with its name,
version and extras, so pip counts it as installed. The original metadata also lists dependencies
that the image omits on purpose (requirements/overrides.in), which pip would install.
"""

import sys
from collections.abc import Iterator
from email.message import Message
from importlib.metadata import distributions
from pathlib import Path

# The same module under two names: each satisfies a requirement for the other.
TENSORFLOW = ("tensorflow", "tensorflow-cpu")
FORMAT = ("Metadata-Version", "2.1")


def main(folder: Path) -> None:
    """Write all files into the folder."""
    packages = {_name(found.metadata): found.metadata for found in distributions()}
    headers = {name: [*_headers(metadata)] for name, metadata in packages.items()}
    for name, other in (TENSORFLOW, TENSORFLOW[::-1]):
        if name in headers and other not in headers:
            # Without extras: tensorflow[and-cuda] has gigabytes that the CPU image never uses.
            headers[other] = [FORMAT, ("Name", other), ("Version", packages[name]["Version"])]
    pins = sorted(f"{name}=={dict(lines)['Version']}\n" for name, lines in headers.items())
    (folder / "constraints.txt").write_text("".join(pins))
    for name, lines in headers.items():
        info = folder / f"{name.replace('-', '_')}-{dict(lines)['Version']}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("".join(f"{key}: {value}\n" for key, value in lines))


def _name(metadata: Message) -> str:
    return str(metadata["Name"]).lower().replace("_", "-")


def _headers(metadata: Message) -> Iterator[tuple[str, str]]:
    """Yield the metadata for pip; of the dependencies, only those of extras."""
    yield FORMAT
    yield "Name", metadata["Name"]
    yield "Version", metadata["Version"]
    for extra in metadata.get_all("Provides-Extra", []):
        yield "Provides-Extra", extra
    for dependency in metadata.get_all("Requires-Dist", []):
        if "extra ==" in dependency:
            yield "Requires-Dist", dependency


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Prints a CycloneDX document of this image: `sbom.py TOOLS IMAGE_ID LABELS`.

scripts/sbom.sh runs it in the image. cyclonedx-py lists Python's packages, including the pip for
your requirements. dpkg lists Debian's. Name and version come from the image's labels. Keras is
marked as patched.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from importlib.metadata import distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

PYTHON = "/opt/venv/bin/python"
PIP = "/opt/pip"
PATCHED = {"keras": "Patched for several workers: see patches/README.md of the project."}
OCI = "org.opencontainers.image."
DPKG = "${binary:Package}\t${Version}\t${Architecture}\t${db:Status-Abbrev}\n"
SPEC = "1.6"


def python_packages(tools: str) -> dict[str, Any]:
    """Return the document of the image's Python environment."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "python.json")
        program = (
            f"import sys; sys.path.insert(0, {tools!r}); "
            "from cyclonedx_py._internal.cli import run; sys.exit(run())"
        )
        options = ["--spec-version", SPEC, "--output-reproducible", "--output-file", str(file)]
        command = [PYTHON, "-I", "-c", program, "environment", *options, PYTHON]
        subprocess.run(command, check=True, stdout=sys.stderr)
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def own_pip() -> dict[str, Any]:
    """Return the pip of the separate folder, which is on no path."""
    version = next(dist.version for dist in distributions(path=[PIP], name="pip"))
    return component("pip", version, f"pkg:pypi/pip@{version}")


def debian_packages() -> list[dict[str, Any]]:
    """Return the packages that dpkg has installed."""
    listed = subprocess.run(
        ["/usr/bin/dpkg-query", "--show", "--showformat", DPKG],
        check=True,
        capture_output=True,
        encoding="utf-8",
    ).stdout
    system = os_release()
    found = []
    for line in listed.splitlines():
        package, version, architecture, status = line.split("\t")
        if not status.startswith("ii"):
            continue
        name = package.partition(":")[0]
        distro = f"{system['ID']}-{system['VERSION_ID']}"
        place = f"pkg:deb/{system['ID']}/{quote(name)}@{quote(version)}"
        found.append(component(name, version, f"{place}?arch={architecture}&distro={distro}"))
    return found


def os_release() -> dict[str, str]:
    """Return the content of /etc/os-release."""
    lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {name: value.strip('"') for name, _, value in pairs}


def component(name: str, version: str, purl: str) -> dict[str, Any]:
    """Return a package as a CycloneDX component."""
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def document(tools: str, image_id: str, labels: dict[str, str]) -> dict[str, Any]:
    """Return the document of the whole image."""
    found = python_packages(tools)
    components = [*found["components"], own_pip(), *debian_packages()]
    for entry in components:
        if entry["purl"].startswith("pkg:pypi/") and entry["name"] in PATCHED:
            entry["pedigree"] = {"notes": PATCHED[entry["name"]]}
    found["components"] = sorted(components, key=lambda entry: str(entry["bom-ref"]))
    properties = [{"name": name, "value": value} for name, value in sorted(labels.items())]
    properties.append({"name": "image.id", "value": image_id})
    found.setdefault("metadata", {})["component"] = {
        "type": "container",
        "bom-ref": "image",
        "name": labels.get(f"{OCI}title", "cluster-trainer"),
        "version": labels.get(f"{OCI}version", ""),
        "licenses": [{"license": {"id": labels.get(f"{OCI}licenses", "Apache-2.0")}}],
        "properties": properties,
    }
    return found


def refuse_invalid(tools: str, text: str) -> None:
    """Raise SystemExit if the document does not match CycloneDX's schema."""
    sys.path.insert(0, tools)
    from cyclonedx.schema import SchemaVersion  # noqa: PLC0415 -- from the folder of tools
    from cyclonedx.validation.json import JsonStrictValidator  # noqa: PLC0415

    wrong = JsonStrictValidator(SchemaVersion.from_version(SPEC)).validate_str(text)
    if wrong:
        sys.exit(f"sbom: the document is not CycloneDX {SPEC}: {wrong}")


def main() -> None:
    """Print the document."""
    tools, image_id, labels = sys.argv[1:]
    text = json.dumps(document(tools, image_id, json.loads(labels) or {}), indent=1)
    refuse_invalid(tools, text)
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()

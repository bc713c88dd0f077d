"""Patches are for the image's versions. A patch that does not fit ends the build."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATCHES = sorted((ROOT / "patches").glob("*.patch"))
APPLY = ROOT / "scripts/apply-patches.sh"
needs_patch = pytest.mark.skipif(not shutil.which("patch"), reason="patch is not installed")
PATCH = """\
--- a/hat/brim.py
+++ b/hat/brim.py
@@ -1,3 +1,3 @@
 one
-two
+TWO
 three
"""


@pytest.mark.parametrize("accelerator", ["cpu", "gpu"])
@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_each_is_for_the_pinned_version(patch, accelerator):
    package, version, _ = patch.stem.split("-", maxsplit=2)
    lock = (ROOT / f"requirements/{accelerator}.txt").read_text()
    assert re.findall(rf"^{package}==(\S+)", lock, re.MULTILINE) == [version]


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_each_is_explained(patch):
    assert f"`{patch.name}`" in (ROOT / "patches/README.md").read_text()


def apply(folder, *, installed="1.2", lines="one\ntwo\nthree\n"):
    packages, patches = folder / "packages", folder / "patches"
    for place in (packages / "hat", packages / f"hat-{installed}.dist-info", patches):
        place.mkdir(parents=True)
    (packages / "hat/brim.py").write_text(lines)
    (patches / "hat-1.2-shout.patch").write_text(PATCH)
    line = [APPLY, patches, packages]
    ended = subprocess.run(line, capture_output=True, text=True, check=False)
    return ended, (packages / "hat/brim.py").read_text()


@needs_patch
def test_one_that_fits_is_applied(tmp_path):
    ended, lines = apply(tmp_path)
    assert (ended.returncode, lines) == (0, "one\nTWO\nthree\n")


@needs_patch
@pytest.mark.parametrize("lines", ["one\n2\nthree\n", "one\ntwo\n3\n", "one\nTWO\nthree\n"])
def test_one_that_does_not_fit_ends_the_build(tmp_path, lines):
    ended, left = apply(tmp_path, lines=lines)
    assert (ended.returncode, left) == (1, lines), ended


def test_one_for_another_version_ends_the_build(tmp_path):
    ended, lines = apply(tmp_path, installed="1.3")
    assert (ended.returncode, lines) == (1, "one\ntwo\nthree\n"), ended
    assert "hat-1.2" in ended.stderr
    assert "hat-1.3" in ended.stderr

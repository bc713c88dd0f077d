"""The repairs of patches/ are in the image, line for line."""

import re
from pathlib import Path

import pytest

PATCHES = sorted((Path(__file__).parents[2] / "patches").glob("*.patch"))
READ = """
import json, sysconfig
from pathlib import Path

print(json.dumps(Path(sysconfig.get_path("purelib"), "{name}").read_text()))
"""
HUNK = re.compile(r"^@@ -\S+ \+(\d+),(\d+) @@.*\n((?:[ +-].*\n)+)", re.MULTILINE)


def test_there_are_patches():
    assert PATCHES  # else the next test would be skipped


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_a_patch_is_applied(run_python, patch):
    text = patch.read_text()
    (name,) = re.findall(r"^\+\+\+ b/(\S+)$", text, re.MULTILINE)
    lines = run_python(READ.format(name=name)).splitlines()
    hunks = HUNK.findall(text)
    assert len(hunks) == text.count("\n@@ -") > 0
    for begin, count, hunk in hunks:
        wanted = [line[1:] for line in hunk.splitlines() if line[0] != "-"]
        assert lines[int(begin) - 1 :][: int(count)] == wanted

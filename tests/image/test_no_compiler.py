import pytest

TOOLS = "cc c++ clang ld as make cmake nvcc git"
PATTERN = "(^|-)(gcc|g[+][+]|clang)(-|$)"
SEARCH = f"for tool in {TOOLS}; do command -v $tool; done; compgen -c | grep -E '{PATTERN}'"


def test_image_has_no_compiler(run_bash):
    assert run_bash(SEARCH).split() == []


@pytest.mark.long
def test_image_with_r_has_no_compiler(run_bash, image_with_r):
    assert run_bash(SEARCH, image=image_with_r).split() == []

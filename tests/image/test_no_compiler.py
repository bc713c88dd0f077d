import pytest

# `bash` shows that both searches work.
TOOLS = "bash cc c++ clang ld as make cmake nvcc git"
PATTERN = "(^|-)(bash|gcc|g[+][+]|clang)(-|$)"
SEARCHES = (
    f"for tool in {TOOLS}; do command -v $tool; done",
    f"compgen -c | grep -E '{PATTERN}'",
)


def found(run_bash, search, **options):
    return {line.rpartition("/")[2] for line in run_bash(search, **options).split()}


@pytest.mark.parametrize("search", SEARCHES)
def test_image_has_no_compiler(run_bash, search):
    assert found(run_bash, search) == {"bash"}


@pytest.mark.long
@pytest.mark.parametrize("search", SEARCHES)
def test_image_with_r_has_no_compiler(run_bash, image_with_r, search):
    assert found(run_bash, search, image=image_with_r) == {"bash"}

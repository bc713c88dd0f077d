TOOLS = "cc c++ clang ld as make cmake nvcc git"
PATTERN = "(^|-)(gcc|g[+][+]|clang)(-|$)"


def test_image_has_no_compiler(run_bash):
    search = f"for tool in {TOOLS}; do command -v $tool; done; compgen -c | grep -E '{PATTERN}'"
    assert run_bash(search).split() == []

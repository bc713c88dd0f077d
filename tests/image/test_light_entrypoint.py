import pytest

HEAVY = ("tensorflow", "keras", "numpy", "pydantic", "trainer")


@pytest.mark.parametrize("command", [["true"], ["explain"]], ids=lambda command: command[0])
def test_entrypoint_imports_nothing_heavy(run_to_end, command):
    # -X importtime lists on stderr each module that a process imports.
    ended = run_to_end(
        "-X", "importtime", "-I", "-m", "entrypoint", *command, entrypoint="/opt/venv/bin/python"
    )
    imported = {line.rpartition("|")[2].strip() for line in ended.err.splitlines()}
    assert "entrypoint" in {name.partition(".")[0] for name in imported}
    assert not [name for name in imported if name.partition(".")[0] in HEAVY]

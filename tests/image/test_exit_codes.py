import pytest


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["true"], 0),
        (["bash", "-c", "exit 3"], 3),
        (["python", "-c", "raise SystemExit(75)"], 75),
        (["python", "-c", "import os; os.kill(os.getpid(), 9)"], 137),
        (["no-such-command"], 127),
        (["/etc/passwd"], 126),
    ],
)
def test_ends_with_the_commands_own_code(run_to_end, command, code):
    assert run_to_end(*command, environment={"MAX_RESTARTS": "0"}).code == code


@pytest.mark.parametrize("command", ["no-such-command", "/etc/passwd"])
def test_says_in_a_sentence_why_a_command_cannot_start(run_to_end, command):
    ended = run_to_end(command)
    assert command in ended.err
    assert "Traceback" not in ended.err

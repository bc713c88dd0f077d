import pytest


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / ".env").write_text(
        'WORKER_HOSTS=h0,h1\nWORKER_INDEX=1\nRENDEZVOUS_TIMEOUT=0\nGREETING="hello there"\n'
    )
    return {"volumes": [f"{tmp_path}:/workspace:ro"]}


def test_variables_of_env_in_the_workspace_reach_the_command(run_to_end, workspace):
    assert run_to_end("bash", "-c", 'echo "$GREETING"', **workspace).out == "hello there\n"


def test_cluster_may_be_described_in_env(run_to_end, workspace):
    ended = run_to_end("bash", "-c", 'echo "$TF_CONFIG"', **workspace)
    assert '"h1:2222"' in ended.out


def test_real_variables_win(run_to_end, workspace):
    given = {"GREETING": "real"}
    ended = run_to_end("bash", "-c", 'echo "$GREETING"', environment=given, **workspace)
    assert ended.out == "real\n"

"""A read-only root file system. Workers of local clusters also have one: test_compose_files.py."""

import pytest

KUBELETS_HOSTS = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"
# The trainer, and a script that imports Keras itself.
COMMANDS = {
    "trainer": ("--epochs", "1"),
    "script": ("python", "-c", "import keras; print('imported')"),
}


def test_progress_can_be_told_on_a_read_only_root(run_to_end):
    # Three crashes are more than MAX_RESTARTS allows, but there is progress before each.
    script = 'echo $RESTART_COUNT >> "$PROGRESS_FILE" && [ "$RESTART_COUNT" = 3 ]'
    ended = run_to_end("sh", "-c", script, read_only=True, environment={"MAX_RESTARTS": "1"})
    assert ended.code == 0, ended.err


def test_a_working_directory_that_may_not_be_searched_is_told(run_to_end):
    ended = run_to_end("echo", "ran", working_dir="/root", user="1000:1000")
    assert (ended.code, ended.out) == (0, "ran\n"), ended
    assert "WARNING worker-0 /root cannot be searched" in ended.err


@pytest.fixture
def without_tmp(run_to_end, tmp_path):
    """Run a command where only /runs is writable, optionally as if in a pod."""

    def run(command, *, in_pod=False):
        (tmp_path / "runs").mkdir()
        (tmp_path / "hosts").write_text(KUBELETS_HOSTS)
        volumes = [f"{tmp_path}/runs:/runs"]
        if in_pod:
            volumes.append(f"{tmp_path}/hosts:/etc/hosts:ro")
        return run_to_end(*command, read_only=True, cap_drop=["ALL"], volumes=volumes)

    return run


@pytest.mark.parametrize("name", COMMANDS)
def test_without_a_folder_for_temporary_files_the_start_is_refused(without_tmp, name):
    ended = without_tmp(COMMANDS[name])
    assert (ended.code, ended.out) == (78, ""), ended
    assert "TMPDIR: received" in ended.err
    assert "Mount one: --tmpfs /tmp." in ended.err
    assert "Traceback" not in ended.err
    assert "restart" not in ended.err


def test_in_a_pod_the_refusal_names_the_pods_own_means(without_tmp):
    ended = without_tmp(COMMANDS["trainer"], in_pod=True)
    assert ended.code == 78, ended
    assert "Mount an emptyDir there." in ended.err
    assert "--tmpfs" not in ended.err

"""A requirements.txt beside a user's code: installed once, before anything else."""

import errno
import fcntl
import json
import time

import pytest

from harness.ended import wait_for_end
from harness.waiting import wait_for_text
from harness.wheels import write_wheel

MODEL = "def build(input_shape, num_classes):\n    raise NotImplementedError\n"
USE = "import tiny; print('uses', tiny.__file__)"
INSTALLS = "installing the packages of requirements.txt into /data/.packages/"
# No index answers there, and pip retries long enough for a test to act meanwhile.
NO_ANSWER = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "9"}
# Less than the grace period, which a command without the signal would use up.
PROMPT_SECONDS = 15
WHEELS = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels"}
# Simulates a file system without locks. Docker takes the profile's text, as the CLI sends it.
NO_LOCKS = {
    "defaultAction": "SCMP_ACT_ALLOW",
    "syscalls": [
        {"names": ["flock"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno.EOPNOTSUPP},
    ],
}


@pytest.fixture
def machine(tmp_path):
    """A folder with wheels, a workspace whose requirements.txt asks for one, and a data folder."""
    write_wheel(tmp_path / "wheels", "tiny", {"tiny.py": MODEL})
    for name in ("workspace", "data"):
        (tmp_path / name).mkdir()
    (tmp_path / "workspace/task.py").write_text(USE)
    (tmp_path / "workspace/requirements.txt").write_text("tiny==1.0\n")
    return tmp_path


@pytest.fixture
def begin(run_container, machine):
    """Start a container with the machine's folders, few rights and no network."""

    def start(*command, data=None, seccomp=(), **environment):
        return run_container(
            *(command or ("python", "task.py")),
            environment={**(environment or WHEELS), "MAX_RESTARTS": "0"},
            volumes=[
                f"{machine}/wheels:/wheels:ro",
                f"{machine}/workspace:/workspace:ro",
                *([] if data else [f"{machine}/data:/data"]),
            ],
            network_mode="none",
            read_only=True,
            tmpfs={"/tmp": "size=64m,mode=1777", **({"/data": data} if data else {})},
            cap_drop=["ALL"],
            security_opt=["no-new-privileges:true", *seccomp],
        )

    return start


@pytest.fixture
def run(begin):
    def to_end(*command, **options):
        return wait_for_end(begin(*command, **options))

    return to_end


def packages(machine):
    """Return the folders of packages, and those that killed installations left."""
    return sorted(path.name for path in (machine / "data/.packages").glob("*") if path.is_dir())


def ask_for(machine, *requirements):
    (machine / "workspace/requirements.txt").write_text("".join(f"{it}\n" for it in requirements))


def test_the_first_start_installs_and_later_ones_find_it(run, machine):
    first, second = run(), run()
    (folder,) = packages(machine)
    assert (first.code, second.code) == (0, 0), first
    assert first.out == second.out
    assert first.out.startswith(f"uses /data/.packages/{folder}/")
    assert INSTALLS + folder in first.err
    assert "installed tiny 1.0 from /wheels (" in first.err
    assert "install" not in second.err
    ask_for(machine, "tiny>=1")
    assert INSTALLS in run().err
    assert len(packages(machine)) == 2


def test_the_trainers_check_finds_what_is_only_in_the_packages(run):
    command = ("explain", "--run-dir", "/tmp", "--model", "tiny:build")
    before = run(*command)
    assert (before.code, "requirements.txt are not installed yet" in before.err) == (78, True)
    assert run("true").code == 0
    after = run(*command)
    assert after.code == 0, after.err
    assert "(derived: installed)" in after.out


def test_what_the_image_has_counts_as_installed_and_comes_first(run, machine):
    write_wheel(machine / "wheels", "shadow", {"numpy/__init__.py": "", "keras.py": ""})
    ask_for(machine, "shadow", "tensorflow>=2.16", "keras", "tensorflow-datasets", "numpy")
    found = (
        "import importlib.util as u; print(*(u.find_spec(n).origin for n in ('numpy', 'keras')))"
    )
    ended = run("python", "-c", found)
    assert ended.code == 0, ended.err
    assert "installed shadow 1.0 from /wheels (" in ended.err
    assert [path.startswith("/opt/venv/") for path in ended.out.split()] == [True, True]


@pytest.mark.parametrize(
    ("requirement", "words"),
    [
        ("numpy==1.26.4", "The user requested (constraint) numpy==2."),
        pytest.param(  # also in test_pip_failures.py
            *("no-such-package", "No matching distribution found for no-such-package"),
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_mistake_is_refused_with_pips_own_words(run, machine, requirement, words):
    ask_for(machine, requirement)
    ended = run()
    assert (ended.code, ended.out) == (78, "")
    assert "  requirements.txt: received " in ended.err
    assert words in ended.err
    assert "Nothing was started." in ended.err
    assert packages(machine) == []


@pytest.mark.long  # also in test_pip_failures.py
def test_an_index_that_does_not_answer_may_answer_later(run):
    ended = run(**NO_ANSWER | {"PIP_RETRIES": "1"})
    assert (ended.code, ended.out) == (75, "")
    last = ended.err.splitlines()[-1]
    assert "the packages of requirements.txt could not be fetched: " in last
    assert "Connection refused" in last


def test_without_a_volume_for_them_nothing_is_installed(run_to_end, machine):
    ended = run_to_end("true", volumes=[f"{machine}/workspace:/workspace:ro"], read_only=True)
    assert ended.code == 78
    assert '  /data/.packages: received "Read-only file system"; accepted: ' in ended.err


def test_a_full_volume_is_said_as_such(run):
    ended = run(data="size=32k,mode=1777")
    assert (ended.code, "No space left on device" in ended.err) == (78, True)
    assert "can write to" not in ended.err


@pytest.mark.long  # also in test_pip_failures.py
def test_a_setting_that_pip_refuses_is_said_with_pips_own_words(run, machine):
    ended = run(**WHEELS, PIP_TIMEOUT="abc")
    assert (ended.code, ended.out) == (78, "")
    assert "  pip's settings: received " in ended.err
    assert "invalid floating-point value: 'abc'" in ended.err
    assert packages(machine) == []


def test_a_file_system_without_locks_will_do(run, machine):
    another = machine / "data/.packages/.unfinished-of-another"
    another.mkdir(parents=True)
    ended = run(seccomp=[f"seccomp={json.dumps(NO_LOCKS)}"])
    assert (ended.code, ended.out[:5]) == (0, "uses "), ended
    assert " WARNING " in ended.err
    assert "Operation not supported" in ended.err
    assert another.exists()


def test_none_switches_it_off(run):
    ended = run("true", REQUIREMENTS_FILE="none")
    assert (ended.code, "install" in ended.err) == (0, False)


def test_workers_that_share_a_volume_install_once(begin, machine):
    folder = machine / "data/.packages"
    folder.mkdir()
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        containers = [begin(), begin()]
        for container in containers:
            wait_for_text(container, "another worker is installing the packages of req")
    ended = [wait_for_end(container) for container in containers]
    assert [one.code for one in ended] == [0, 0]
    assert sorted(INSTALLS in one.err for one in ended) == [False, True]
    assert sorted("another worker has installed them" in one.err for one in ended) == [False, True]


def test_an_installation_that_is_killed_leaves_nothing_that_counts(begin, run, machine):
    container = begin(**NO_ANSWER)
    wait_for_text(container, INSTALLS)
    container.kill()
    wait_for_end(container)
    (unfinished,) = packages(machine)
    assert unfinished.startswith(".unfinished-")
    assert run().code == 0
    (folder,) = packages(machine)
    assert not folder.startswith(".")


def test_docker_stop_ends_an_installation_at_once(begin):
    container = begin(**NO_ANSWER, STOP_GRACE_SECONDS="25")
    wait_for_text(container, INSTALLS)
    start = time.monotonic()
    container.stop(timeout=30)
    assert time.monotonic() - start < PROMPT_SECONDS
    ended = wait_for_end(container)
    assert (ended.code, "stopped by SIGTERM" in ended.err) == (143, True)

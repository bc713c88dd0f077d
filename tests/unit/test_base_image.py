"""The base image that scripts/base-image.sh chooses. `docker` and debootstrap are scripts here.

The engine is a folder with a file for each of its images.
"""

import os
import re
import subprocess
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts/base-image.sh"
TAG, DIGEST = "debian:bookworm-20260713-slim", f"sha256:{'ab' * 32}"
PINNED = f"{TAG}@{DIGEST}"
STAND_IN = "cluster-trainer-base:bookworm"
# The registry is a file. It is absent if nothing answers, and "hangs" if packets are dropped.
DOCKER = """#!/bin/bash
echo "docker $*" >> calls
here() { [ -e "engine/${1////_}" ]; }
case "$1 $2" in
    "image inspect")
        here "${@: -1}" || exit 1
        case $* in
            *Created*) cat "engine/${*: -1}" ;;
            *Architecture*) cat "engine/${*: -1}.of" 2> /dev/null || echo amd64 ;;
            *RepoDigests*) echo debian@sha256:seen ;;
        esac ;;
    "pull --quiet")
        [ -e registry ] || exit 1
        [ "$(cat registry)" != hangs ] || exec sleep 60
        name=${*: -1}
        [ "$3" != --platform ] || echo "${4#linux/}" > "engine/${name////_}.of"
        date -u +%FT%TZ > "engine/${name////_}" ;;
    "buildx build")
        [ -s "${*: -1}/root.tar" ] || exit 1
        for word; do
            case $before in
                --platform) platform=${word#linux/} ;;
                --tag) tag=$word ;;
            esac
            before=$word
        done
        [ -z "$platform" ] || echo "$platform" > "engine/$tag.of"
        date -u +%FT%TZ > "engine/$tag" ;;
    "version --format") echo amd64 ;;
esac
"""
DEBOOTSTRAP = """#!/bin/bash
echo "debootstrap $*" >> calls
[ ! -e no-mirror ] || exit 1
for word; do [[ $word != */root ]] || mkdir -p "$word/usr/share/doc"; done
"""
MISSING = "#!/bin/bash\nexit 127\n"


@dataclass(frozen=True)
class Machine:
    """A clone of the repository on a machine.

    Attributes:
        root: the clone. The engine's folder and the registry's file are in it, too.
    """

    root: Path

    def has(self, image: str, days: float = 0) -> None:
        """Give the engine an image that was made so many days ago."""
        made = datetime.now(UTC) - timedelta(days=days)
        (self.root / "engine" / image.replace("/", "_")).write_text(f"{made:%Y-%m-%dT%H:%M:%SZ}")

    def registry(self, text: str = "answers") -> None:
        """Add a registry, which answers or hangs."""
        (self.root / "registry").write_text(text)

    def run(self, *platform: str, **environ: str) -> subprocess.CompletedProcess[str]:
        (self.root / "calls").write_text("")
        own = {"PATH": f"{self.root}/bin:{os.environ['PATH']}"}
        rest = {name: text for name, text in os.environ.items() if not name.startswith("BASE_")}
        return subprocess.run(
            [self.root / "scripts/base-image.sh", *platform],
            env=rest | own | environ,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    def calls(self, program: str) -> list[str]:
        """Return the calls of a program in the last run."""
        lines = (self.root / "calls").read_text().splitlines()
        return [line for line in lines if line.startswith(program)]


@pytest.fixture
def machine(tmp_path):
    for name in ("bin", "engine", "scripts"):
        (tmp_path / name).mkdir()
    programs = {
        "bin/docker": DOCKER,
        "bin/debootstrap": DEBOOTSTRAP,
        "bin/id": "#!/bin/bash\necho 0\n",
        # macOS has none.
        "bin/timeout": MISSING,
        "scripts/debian-mirror.sh": "#!/bin/bash\n",
        "scripts/base-image.sh": SCRIPT.read_text(),
        "scripts/remove-unnamed.sh": (ROOT / "scripts/remove-unnamed.sh").read_text(),
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "Dockerfile").write_text(f"ARG BASE_IMAGE={PINNED}\nFROM $BASE_IMAGE\n")
    return Machine(tmp_path)


def test_the_pinned_image_is_taken_where_it_is_here(machine):
    machine.has(PINNED)
    machine.has(STAND_IN)
    assert machine.run().stdout == f"{PINNED}\n"
    assert machine.calls("docker pull") == []


def test_the_pinned_image_is_pulled_and_its_digest_is_said(machine):
    machine.registry()
    done = machine.run()
    assert (done.returncode, done.stdout) == (0, f"{PINNED}\n"), done.stderr
    assert "debian@sha256:seen" in done.stderr
    assert machine.calls("debootstrap") == []


def test_without_a_registry_an_equal_base_is_made_once(machine):
    first, second = machine.run(), machine.run()
    assert (first.stdout, second.stdout) == (f"{STAND_IN}\n", f"{STAND_IN}\n"), first.stderr
    assert PINNED in first.stderr
    assert second.stderr == ""
    assert machine.calls("debootstrap") == []


def test_a_registry_that_did_not_answer_is_asked_again_after_a_day(machine):
    machine.run()
    machine.registry()
    assert machine.run().stdout == f"{STAND_IN}\n"
    assert machine.calls("docker pull") == []
    (tried,) = (machine.root / ".build").iterdir()
    yesterday = time.time() - 90_000
    os.utime(tried, (yesterday, yesterday))
    assert machine.run().stdout == f"{PINNED}\n"


def test_another_pinned_image_is_asked_for_at_once(machine):
    machine.run()
    (machine.root / "Dockerfile").write_text("ARG BASE_IMAGE=debian:bookworm-20270101-slim\n")
    machine.registry()
    assert machine.run().stdout == "debian:bookworm-20270101-slim\n"


def test_a_base_that_was_made_here_gives_way_to_the_pinned_one(machine):
    machine.has(STAND_IN)
    machine.registry()
    assert machine.run().stdout == f"{PINNED}\n"


@pytest.mark.parametrize(("days", "made_anew"), [(29, False), (31, True)])
def test_a_base_that_was_made_here_is_made_anew_after_30_days(machine, days, made_anew):
    machine.has(STAND_IN, days)
    done = machine.run()
    assert done.stdout == f"{STAND_IN}\n"
    assert bool(machine.calls("debootstrap")) is made_anew, done.stderr
    again = machine.run()
    assert (again.stdout, machine.calls("debootstrap")) == (f"{STAND_IN}\n", [])


def test_an_old_base_that_cannot_be_made_anew_is_taken_with_a_warning(machine):
    machine.has(STAND_IN, days=31)
    (machine.root / "no-mirror").touch()
    done = machine.run()
    assert (done.returncode, done.stdout) == (0, f"{STAND_IN}\n")
    assert "30 days" in done.stderr


def test_no_base_at_all_is_an_error(machine):
    (machine.root / "no-mirror").touch()
    done = machine.run()
    assert (done.returncode, done.stdout) == (1, "")
    assert "debootstrap" in done.stderr


def test_who_may_not_make_one_is_told_what_is_missing(machine):
    (machine.root / "bin/id").write_text("#!/bin/bash\necho 1000\n")
    done = machine.run()
    assert (done.returncode, done.stdout) == (1, "")
    assert PINNED in done.stderr
    assert "root" in done.stderr


def test_a_registry_that_hangs_is_not_waited_for(machine):
    machine.registry("hangs")
    begin = time.monotonic()
    assert machine.run(BASE_PULL_SECONDS="1").stdout == f"{STAND_IN}\n"
    assert time.monotonic() - begin < 10


@pytest.mark.parametrize("image", [PINNED, f"debian@{DIGEST}"])
def test_a_digest_is_part_of_the_name(machine, image):
    (machine.root / "Dockerfile").write_text(f"ARG BASE_IMAGE={image}\n")
    machine.has(TAG)
    machine.registry()
    assert machine.run().stdout == f"{image}\n"
    assert machine.calls("docker pull") == [f"docker pull --quiet {image}"]


def test_all_dockerfiles_name_the_same_base_by_its_digest():
    texts = [(ROOT / name).read_text() for name in ("Dockerfile", "benchmarks/torch/Dockerfile")]
    (name,) = {re.search(r"(?m)^ARG BASE_IMAGE=(.*)$", text)[1] for text in texts}
    assert re.fullmatch(r"debian:[a-z]+-\d{8}-slim@sha256:[0-9a-f]{64}", name)


def test_a_base_of_the_users_own_is_pulled_or_refused_and_never_replaced(machine):
    machine.has(STAND_IN)
    own = "registry.example:5000/base:1"
    refused = machine.run(BASE_IMAGE=own)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert own in refused.stderr
    machine.registry()
    assert machine.run(BASE_IMAGE=own).stdout == f"{own}\n"


def test_a_base_of_another_architecture_is_pulled_and_is_none_for_this_machine(machine):
    machine.has(PINNED)
    machine.registry()
    assert machine.run("linux/arm64").stdout == f"{PINNED}\n"
    assert machine.calls("docker pull") == [f"docker pull --quiet --platform linux/arm64 {PINNED}"]
    (machine.root / "registry").unlink()
    assert machine.run("linux/arm64").stdout == f"{PINNED}\n"
    assert machine.run().stdout == f"{STAND_IN}\n"


def test_without_a_registry_a_base_of_another_architecture_is_made_beside_this_machines(machine):
    machine.has(STAND_IN)
    done = machine.run("linux/arm64")
    assert done.stdout == f"{STAND_IN}-arm64\n", done.stderr
    assert "--arch arm64" in machine.calls("debootstrap")[0]
    assert machine.run("linux/arm64").stdout == f"{STAND_IN}-arm64\n"
    assert machine.calls("debootstrap") == []
    assert machine.run().stdout == f"{STAND_IN}\n"

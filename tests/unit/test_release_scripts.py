"""The labels of an image, and the images that are pushed. `docker` is a script here."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
DIGEST = f"sha256:{'ab' * 32}"
DOCKER = """#!/bin/bash
echo "docker $*" >> calls
case "$1 $2 $*" in
    "image inspect "*revision*) cat revision ;;
    "image inspect "*version*) echo 0.1.0 ;;
    "image inspect "*RepoDigests*) cat digests ;;
    "image inspect "*) [ -e revision ] ;;
    "push "*) [ ! -e fails ] || exit 1
        echo "0a1b: Pushed"; echo "${2##*:}: digest: $(cat digest) size: 3456" ;;
esac
"""


@dataclass(frozen=True)
class Clone:
    """A clone of the repository, with a `docker` that takes its answers from files."""

    root: Path

    def run(self, script: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        (self.root / "calls").write_text("")
        own = {"PATH": f"{self.root}/bin:{os.environ['PATH']}"}
        return subprocess.run(
            [self.root / "scripts" / script, *arguments],
            env=own | environ,
            capture_output=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )

    def labels(self, base: str, **environ: str) -> dict[str, str]:
        printed = self.run("labels.sh", base, **environ)
        assert printed.returncode == 0, printed.stderr
        pairs = (line.partition("=") for line in printed.stdout.splitlines())
        return {name.removeprefix("org.opencontainers.image."): text for name, _, text in pairs}

    def git(self, *arguments: str, **environ: str) -> None:
        subprocess.run(["git", *arguments], cwd=self.root, env=os.environ | environ, check=True)

    @property
    def calls(self) -> list[str]:
        return (self.root / "calls").read_text().splitlines()


@pytest.fixture
def clone(tmp_path):
    for name in ("labels.sh", "push.sh"):
        script = tmp_path / "scripts" / name
        script.parent.mkdir(exist_ok=True)
        script.write_text((SCRIPTS / name).read_text())
        script.chmod(0o755)
    docker = tmp_path / "bin/docker"
    docker.parent.mkdir()
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    (tmp_path / "digests").write_text("")
    clone = Clone(tmp_path)
    clone.git("init", "--quiet")
    return clone


def commit(clone: Clone, date: str) -> None:
    name = ("-c", "user.name=a", "-c", "user.email=a@b")
    options = ("--quiet", "--allow-empty", "--message", "one", f"--date={date}")
    clone.git(*name, "commit", *options, GIT_COMMITTER_DATE=date)


def test_created_is_the_date_of_the_commit_so_that_building_again_changes_nothing(clone):
    commit(clone, "2026-11-22T12:00:00+0100")
    assert clone.labels("debian:x", TZ="EAST-9")["created"] == "2026-11-22T11:00:00Z"


def test_leaves_out_what_cannot_be_known(clone):
    assert clone.labels("debian:x") == {"base.name": "debian:x"}


def test_names_the_base_and_the_digest_that_its_registry_told(clone):
    (clone.root / "digests").write_text(f"debian@{DIGEST}\n")
    labels = clone.labels(f"debian:x@{DIGEST}")
    assert labels == {"base.name": "debian:x", "base.digest": DIGEST}


@pytest.mark.parametrize(
    "address",
    [
        "https://example.org/me/trainer.git",
        "https://me:secret@example.org/me/trainer",
        "git@example.org:me/trainer.git",
        "ssh://git@example.org:22/me/trainer.git",
    ],
)
def test_source_is_the_remotes_public_address_without_a_password(clone, address):
    clone.git("remote", "add", "origin", address)
    assert clone.labels("debian:x")["source"] == "https://example.org/me/trainer"


def test_source_is_never_a_folder_of_this_machine(clone):
    clone.git("remote", "add", "origin", "/srv/git/trainer.git")
    assert "source" not in clone.labels("debian:x")


def test_source_can_be_given(clone):
    url = "https://example.org/other"
    assert clone.labels("debian:x", SOURCE_URL=url)["source"] == url


@pytest.mark.parametrize(
    "registry",
    [
        "h.org/me",
        "docker.io/me",
        "me",
        "localhost:5000",
        "h.org:5000/me",
        "[::1]:5000",
        "h.org/me/",
    ],
)
def test_pushes_an_image_under_its_variant_and_its_version(clone, registry):
    (clone.root / "revision").write_text("abc\n")
    (clone.root / "digest").write_text(DIGEST)
    pushed = clone.run("push.sh", "cpu", REGISTRY=registry)
    assert pushed.returncode == 0, pushed.stderr
    name = f"{registry.rstrip('/')}/cluster-trainer"
    assert pushed.stdout == f"{name}@{DIGEST}\n"
    assert "0a1b: Pushed" in pushed.stderr
    pushes = [call for call in clone.calls if call.startswith("docker push")]
    assert pushes == [f"docker push {name}:0.1.0-cpu", f"docker push {name}:cpu"]


def test_a_push_that_fails_ends_it(clone):
    (clone.root / "revision").write_text("abc\n")
    (clone.root / "fails").touch()
    failed = clone.run("push.sh", "cpu", REGISTRY="h.org/me")
    assert failed.returncode != 0
    assert failed.stdout == ""
    assert len([call for call in clone.calls if call.startswith("docker push")]) == 1


@pytest.mark.parametrize(
    ("revision", "environ", "says"),
    [
        ("abc", {}, "REGISTRY="),
        (None, {"REGISTRY": "h.org"}, "make build-cpu"),
        ("abc-modified", {"REGISTRY": "h.org"}, "ALLOW_MODIFIED=1"),
        ("unknown", {"REGISTRY": "h.org"}, "ALLOW_MODIFIED=1"),
    ],
)
def test_pushes_nothing_that_others_could_not_find_again(clone, revision, environ, says):
    if revision:
        (clone.root / "revision").write_text(revision)
    refused = clone.run("push.sh", "cpu", **environ)
    assert refused.returncode == 1
    assert says in refused.stderr
    assert not [
        call for call in clone.calls if call.startswith(("docker push", "docker image tag"))
    ]

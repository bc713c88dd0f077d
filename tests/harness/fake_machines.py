"""Fake machines without SSH and Docker, for commands of clusters on several machines.

The fake `ssh` runs its command on this machine, and the fake `docker` is this file. Each machine is
a folder. Its containers are files with their state, and `calls` lists every docker command. An
empty file `away` disconnects it, and `listens` lists its open ports in the format of /proc/net/tcp.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SSH = """#!/bin/sh
command=; name=
for last; do name=$command; command=$last; done
if [ "$1" = -G ]; then echo "hostname ${{last#*@}}.example"; exit 0; fi
export FAKE_MACHINE="{folder}/${{name#*@}}" HOME="{folder}/${{name#*@}}"
[ -d "$HOME" ] && [ ! -e "$HOME/away" ] || {{ echo "no route to $name" >&2; exit 255; }}
cd "$HOME" && exec sh -c "$command"
"""
DOCKER = '#!/bin/sh\nexec "{python}" "{file}" "{folder}" "$@"\n'
CAT = """#!/bin/sh
[ -n "$FAKE_MACHINE" ] && [ "$1" = /proc/net/tcp ] || exec /bin/cat "$@"
[ ! -e "$FAKE_MACHINE/listens" ] || /bin/cat "$FAKE_MACHINE/listens"
"""
IMAGE = "layers"
LABEL = re.compile(r'\{\{(or \()?(?:index \.Config\.Labels|\.Label) "([^"]+)"\)?(?: "-")?\}\}')
"""A label in a template, possibly within `or (…) "-"`."""
HANGS_SECONDS = 60


@dataclass(frozen=True)
class FakeMachine:
    """One machine.

    Attributes:
        folder: the folder with all of its files.
    """

    folder: Path

    @property
    def containers(self) -> dict[str, str]:
        """The state of each container, by name."""
        return {file.name: content["state"] for file, content in _contents(self.folder)}

    def put(self, name: str, state: str, **labels: str) -> None:
        """Create a container."""
        place = self.folder / "containers" / name
        _write(place, {"state": state, "labels": labels, "starts": 1})

    def calls(self, word: str) -> list[list[str]]:
        """Return the docker commands of a kind, in order; one that is being written is none yet."""
        with suppress(FileNotFoundError):
            whole, _, _ = (self.folder / "calls").read_text().rpartition("\n")
            lines = whole.splitlines()
            return [call for line in lines if (call := json.loads(line))[0] == word]
        return []

    def cut_off(self, *, is_away: bool = True) -> None:
        """Disconnect the machine, or connect it again."""
        file = self.folder / "away"
        if is_away:
            file.touch()
        else:
            file.unlink()

    def listen(self, port: int) -> None:
        """Pretend that a program of the machine listens on a port."""
        line = f"   0: 00000000:{port:04X} 00000000:0000 0A 00000000:00000000\n"
        (self.folder / "listens").write_text(line)

    def cannot_reach(self, address: str, why: str) -> None:
        """Make the test of the connections fail for an address, such as "m2.example:2222"."""
        (self.folder / "unreached").write_text(f"{address}\t{why}\n")

    def fail(self, word: str, said: str = "it failed") -> None:
        """Make docker commands of a kind fail."""
        (self.folder / f"fail-{word}").write_text(said)

    def mend(self, word: str) -> None:
        """Make docker commands of a kind work again."""
        (self.folder / f"fail-{word}").unlink()

    def hang(self, word: str) -> None:
        """Make docker commands of a kind hang, as on a bad connection, until `cut_hanging`."""
        (self.folder / f"hang-{word}").touch()

    def cut_hanging(self, word: str) -> None:
        """Make the hanging commands fail, and later commands work."""
        (self.folder / f"hang-{word}").unlink()


def make(folder: Path, names: list[str]) -> dict[str, FakeMachine]:
    """Create machines, and the fake programs for PATH in `bin`."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/ssh").write_text(SSH.format(folder=folder))
    docker = DOCKER.format(python=sys.executable, file=Path(__file__), folder=folder)
    (folder / "bin/docker").write_text(docker)
    (folder / "bin/cat").write_text(CAT)
    for program in (folder / "bin").iterdir():
        program.chmod(0o755)
    for name in [*names, "here"]:
        (folder / name / "containers").mkdir(parents=True)
    return {name: FakeMachine(folder / name) for name in names}


def _contents(machine: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the containers of a machine; another process may remove one meanwhile."""
    for file in sorted((machine / "containers").iterdir()):
        with suppress(FileNotFoundError):
            yield file, json.loads(file.read_text())


def _write(file: Path, content: dict[str, object]) -> None:
    """Write a container's file atomically: a test may read it at any moment."""
    new = file.parent.parent / f"new-{file.name}-{os.getpid()}"
    new.write_text(json.dumps(content))
    new.replace(file)


def _docker(here: Path, words: list[str]) -> int:
    if words[0] == "--host":
        machine = here / words[1].removeprefix("ssh://").rpartition("@")[2]
        words = words[2:]
        if (machine / "away").exists():
            return _fail("no route")
    else:
        machine = Path(os.environ.get("FAKE_MACHINE") or here / "here")
    with (machine / "calls").open("a") as calls:
        calls.write(json.dumps(words) + "\n")
    kind = "detached" if "--detach" in words else words[0]
    if _has_hung(machine / f"hang-{kind}"):
        return _fail("the connection was lost")
    failing = machine / f"fail-{kind}"
    if failing.exists():
        return _fail(failing.read_text())
    done = {
        "run": _run,
        "inspect": _inspect,
        "stop": _stop,
        "rm": _rm,
        "start": _start,
        "ps": _ps,
    }.get(words[0], _other)
    return done(machine / "containers", words)


def _has_hung(file: Path) -> bool:
    """Wait while a file exists; return whether it existed."""
    end = time.monotonic() + HANGS_SECONDS
    has_hung = file.exists()
    while file.exists() and time.monotonic() < end:
        time.sleep(0.02)
    return has_hung


def _fail(said: str) -> int:
    print(said, file=sys.stderr)
    return 1


def _run(containers: Path, words: list[str]) -> int:
    if "--interactive" in words:  # a test of the connections
        (containers.parent / "tried").write_text(" ".join(words))
        unreached = containers.parent / "unreached"
        print(unreached.read_text() if unreached.exists() else "", end="")
        print("tried", flush=True)
        sys.stdin.read()
        return 0
    name = words[words.index("--name") + 1]
    pairs = [word.partition("=") for at, word in enumerate(words) if words[at - 1] == "--label"]
    state = (containers.parent / "ends").exists()
    content = {"state": "exited" if state else "running", "labels": {a: b for a, _, b in pairs}}
    if (containers / name).exists():
        return _fail(f"Conflict. The container name {name} is already in use")
    _write(containers / name, content)
    return 0


def _inspect(containers: Path, words: list[str]) -> int:
    file = containers / words[-1]
    if not file.exists():
        return _fail(f"Error: No such object: {words[-1]}")
    form = words[2] if words[1] == "--format" else ""
    print(_filled(form, file.name, json.loads(file.read_text())))
    return 0


def _filled(form: str, name: str, content: dict[str, Any]) -> str:
    """Return a template filled with a container's values."""
    fields = {
        "{{.State.Status}}": content["state"],
        "{{.State.ExitCode}}": "0",
        "{{.State.StartedAt}}": "2026-11-28T10:00:00Z",
        "{{.Config.StopTimeout}}": "10",
        "{{.Id}}": name,
        "{{.ID}}": name,
        "{{.Names}}": name,
    }
    for field, value in fields.items():
        form = form.replace(field, value)
    return LABEL.sub(lambda found: content["labels"].get(found[2], "-" if found[1] else ""), form)


def _change(containers: Path, name: str, state: str) -> int:
    file = containers / name
    if not file.exists():
        return _fail(f"Error response from daemon: No such container: {name}")
    _write(file, json.loads(file.read_text()) | {"state": state})
    return 0


def _stop(containers: Path, words: list[str]) -> int:
    return _change(containers, words[-1], "exited")


def _start(containers: Path, words: list[str]) -> int:
    return _change(containers, words[-1], "running")


def _rm(containers: Path, words: list[str]) -> int:
    if words[-1] != "--force":
        (containers / words[-1]).unlink(missing_ok=True)
    return 0


def _ps(containers: Path, words: list[str]) -> int:
    labels = [word.removeprefix("label=") for word in words if word.startswith("label=")]
    for file, found in _contents(containers.parent):
        wanted = {text.partition("=")[0]: text.partition("=")[2] for text in labels}
        has_all = all(found["labels"].get(name) == text for name, text in wanted.items())
        if has_all and ("--all" in words or found["state"] == "running"):
            form = words[words.index("--format") + 1] if "--format" in words else "{{.Names}}"
            print(_filled(form, file.name, found))
    return 0


def _other(containers: Path, words: list[str]) -> int:
    form = words[words.index("--format") + 1] if "--format" in words else ""
    machine = containers.parent
    if words[0] == "version":
        print("27.0.1")
    elif words[:2] == ["image", "inspect"]:
        if not (machine / "no-image").exists():
            print(
                form.replace("{{.Size}} {{.Architecture}}", "9 amd64")
                if "Size" in form
                else ("image=" if form.startswith("image=") else "") + IMAGE
            )
    elif words[0] == "info":
        print('["name=seccomp"]' if "Security" in form else "/" if "Root" in form else "{}")
    elif words[0] == "load":
        sys.stdin.buffer.read()
        (machine / "no-image").unlink(missing_ok=True)
    elif words[0] == "events" and (machine / "dies").exists():
        (machine / "dies").unlink()
        for file in containers.iterdir():
            _change(containers, file.name, "exited")
        print("die 1", flush=True)
    elif words[0] == "logs":
        print("2026-11-28T10:00:00.1Z a line", flush=True)
    return 0


def run(command: list[str], environ: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """Run a command of `cluster.py` to its end."""
    return subprocess.run(
        command, env=environ, capture_output=True, text=True, check=False, timeout=60
    )


if __name__ == "__main__":
    sys.exit(_docker(Path(sys.argv[1]), sys.argv[2:]))

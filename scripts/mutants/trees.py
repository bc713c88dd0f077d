"""Copies the repository for mutants, and runs tests in the copies."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import sysconfig
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.mutants.sites import Mutant, changed

PROJECT = Path(__file__).parents[2]
TRACED = Path(__file__).parent / "traced"
IN_IMAGE = "/opt/cluster-trainer"
"""The product's folder in the image."""
OF_IMAGE = ("entrypoint", "trainer")
PLUGIN = ("-p", "traced_tests")
ALL = ("-m", "")
"""Options of pytest that select the long tests, too."""
TOOK_TOO_LONG = 124
"""The exit code of a run that reached the time limit, as of timeout(1)."""
KILL_AFTER_SECONDS = 20


@dataclass(frozen=True)
class Run:
    """The result of a run of pytest."""

    code: int
    output: str


@dataclass(frozen=True)
class Tree:
    """A copy of the repository at one commit, with its own Python."""

    root: Path

    def prepare(self, commit: str) -> None:
        """Make the copy, or reset it: a run that was killed may have left a mutant in it."""
        source = str(self.source)
        if (self.root / "ready").exists():
            subprocess.run(["git", "-C", source, "checkout", "--quiet", "--", "."], check=True)
            return
        clone = ["git", "clone", "--quiet", "--shared", "--no-checkout", str(PROJECT), source]
        subprocess.run(clone, check=True)
        subprocess.run(["git", "-C", source, "checkout", "--quiet", "--detach", commit], check=True)
        venv = self.source / ".venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        (self._packages / "packages.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
        subprocess.run(
            [self._python, "-m", "compileall", "-q", *OF_IMAGE], cwd=self.source, check=False
        )
        (self.root / "ready").touch()

    @property
    def source(self) -> Path:
        """The copy's own folder."""
        return self.root / "source"

    @property
    def _python(self) -> Path:
        return self.source / ".venv/bin/python"

    @property
    def _packages(self) -> Path:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.source / ".venv/lib" / version / "site-packages"

    @contextlib.contextmanager
    def with_change(self, mutant: Mutant) -> Iterator[None]:
        """Put the mutant in the place of the product's file for a while.

        Its modification time differs even within the same second, because Python uses it to find
        out whether its bytecode is up to date.
        """
        path = self.source / mutant.path
        before, times = path.read_bytes(), path.stat()
        try:
            path.write_bytes(changed(before, mutant))
            os.utime(path, (times.st_atime, times.st_mtime + 3600))
            yield
        finally:
            path.write_bytes(before)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def unit(
        self, arguments: Sequence[str], limit_seconds: float, notes: Path | None = None
    ) -> Run:
        """Run tests that need no Docker; `notes` is the folder of traced_lines.py."""
        traced = self._packages / "traced.pth"
        traced.unlink(missing_ok=True)
        if notes is None:
            return self._run(self._pytest(arguments), {}, limit_seconds)
        traced.write_text(_line(TRACED, self.source, notes))
        try:
            return self._run(self._pytest([*PLUGIN, *arguments]), {}, limit_seconds)
        finally:
            traced.unlink()

    def _pytest(self, arguments: Sequence[str]) -> list[str]:
        pytest = [str(self._python), "-m", "pytest", *ALL, *QUIET]
        return [*pytest, "--hypothesis-seed", "0", *arguments]

    def inside(
        self, arguments: Sequence[str], limit_seconds: float, notes: Path | None = None
    ) -> Run:
        """Run tests in a container of the image, with this copy's product in it."""
        name = f"mutants-{uuid.uuid4().hex[:12]}"
        options = ["--name", name, "--cpu-shares", "256"]
        for package in OF_IMAGE:
            options += ["--volume", f"{self.source / package}:{IN_IMAGE}/{package}:ro"]
        more = list(arguments)
        if notes is not None:
            pth = self.root / "traced-inside.pth"
            pth.write_text(_line(Path("/opt/traced"), Path(IN_IMAGE), Path("/opt/notes")))
            options += ["--volume", f"{TRACED}:/opt/traced:ro", "--volume", f"{notes}:/opt/notes"]
            options += ["--volume", f"{pth}:/opt/venv/lib/python3.11/site-packages/traced.pth:ro"]
            more = [*PLUGIN, *more]
        environ = {"DOCKER_OPTIONS": " ".join(options), "TESTS_OF": str(self.source)}
        try:
            command = [str(PROJECT / "scripts/inside.sh"), *ALL, *QUIET, *more]
            return self._run(command, environ, limit_seconds)
        finally:
            subprocess.run(["docker", "rm", "--force", name], capture_output=True, check=False)

    def containers(self, arguments: Sequence[str], limit_seconds: float) -> Run:
        """Run tests that use the Docker engine, with an image of this copy's product."""
        image = f"cluster-trainer:mutants-{uuid.uuid4().hex[:12]}"
        base = os.environ.get("IMAGE") or "cluster-trainer:cpu"
        copies = "\n".join(f"COPY {package} {IN_IMAGE}/{package}" for package in OF_IMAGE)
        dockerfile = self.root / "Dockerfile"
        dockerfile.write_text(f"FROM {base}\n{copies}\n")
        build = [
            "docker",
            "build",
            "--quiet",
            "--tag",
            image,
            "--file",
            str(dockerfile),
            str(self.source),
        ]
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
        try:
            return self._run(self._pytest(arguments), {"IMAGE": image}, limit_seconds)
        finally:
            subprocess.run(["docker", "rmi", image], capture_output=True, check=False)

    def _run(self, command: list[str], environ: Mapping[str, str], limit_seconds: float) -> Run:
        process = subprocess.Popen(
            command,
            cwd=self.source,
            env={**os.environ, **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit_seconds)
        except subprocess.TimeoutExpired:
            output = _end(process)
            return Run(TOOK_TOO_LONG, output)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        return Run(process.returncode, output)


QUIET = ("-q", "-p", "no:cacheprovider", "--durations", "0", "--durations-min", "20")


def _line(tools: Path, root: Path, notes: Path) -> str:
    """Return the line of a `.pth` file, which Python runs at each start."""
    begin = f"__import__('traced_lines').begin({str(root)!r}, {str(notes)!r})"
    return f"import sys; sys.path.append({str(tools)!r}); {begin}\n"


def _end(process: subprocess.Popen[str]) -> str:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        return process.communicate(timeout=KILL_AFTER_SECONDS)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0]

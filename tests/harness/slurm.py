"""A Slurm cluster of containers: a controller and three nodes, each with the image under test.

Tasks run in the nodes' own containers, as under a runtime that shares the host's processes and
network, such as Apptainer. Or they run in Charliecloud, whose image is the node's own file system.
"""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from docker.models.containers import Container

from harness.packages import as_mounts
from harness.waiting import WaitError, wait_inside
from harness.workbench import Workbench

FOLDER = Path(__file__).parents[1] / "slurm"
CONTROLLER = "controller"
NODES = ("n01", "n02", "n03")
USER = "1000"
"""The image's own user submits the jobs."""
UP_SECONDS = 60
UNPACKED = "/images/trainer"
"""The folder of the unpacked image on nodes that may mount, as `ch-convert` unpacks it."""
ENVIRONMENT = f"{UNPACKED}/ch/environment"
"""The file in which Charliecloud keeps an image's variables."""
READ_RESULTS = """
import json, pathlib, sys
files = sorted(pathlib.Path(sys.argv[1]).glob("worker-*/result.json"))
print(json.dumps([json.loads(file.read_text()) for file in files]))
"""
ENDED = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY")


@dataclass(frozen=True)
class Job:
    """A job that was submitted.

    Attributes:
        cluster: its cluster.
        number: Slurm's number of the job.
        runs: the folder of its results, which all nodes share.
    """

    cluster: "SlurmCluster"
    number: str
    runs: str

    def facts(self) -> Mapping[str, str]:
        """Return Slurm's facts about it, by Slurm's names: JobState, Restarts, NodeList."""
        shown = self.cluster.ask("scontrol", "show", "job", self.number)
        return dict(re.findall(r"(\w+)=(\S*)", shown))

    def output(self) -> str:
        """Return its output so far."""
        return self.cluster.read(self.log)

    @property
    def log(self) -> str:
        """The path of its log on all nodes."""
        return f"/runs/{self.number}.log"

    def wait_for_text(self, text: str, timeout_seconds: float) -> None:
        """Wait until it has printed `text`.

        Raises:
            WaitError: it was not printed in time, or the job ended without it.
        """

        printed = f"grep --quiet --fixed-strings {shlex.quote(text)} {self.log}"
        what = f"the job prints {text!r}"
        self.cluster.wait(f"{printed} || {self._is_over}", timeout_seconds, what, self.output)
        if text not in self.output():
            message = f"the job ended without {text!r}\n{self.output()}"
            raise WaitError(message)

    def wait_for_end(self, timeout_seconds: float) -> Mapping[str, str]:
        """Wait until it has ended, and return Slurm's facts about it.

        Raises:
            WaitError: it did not end in time.
        """
        self.cluster.wait(self._is_over, timeout_seconds, "the job ends", self.output)
        return self.facts()

    @property
    def _is_over(self) -> str:
        ended = shlex.quote(f"JobState=({'|'.join(ENDED)}) ")
        return f"scontrol show job {self.number} | grep --quiet --extended-regexp {ended}"

    def results(self) -> Sequence[Mapping[str, object]]:
        """Return each worker's result.json."""
        return json.loads(self.cluster.ask("python", "-c", READ_RESULTS, self.runs))


@dataclass(frozen=True)
class SlurmCluster:
    """The containers of a cluster.

    Attributes:
        bench: the engine.
        image: the image with Slurm in it.
        network: the network's name.
        volume: the volume that all nodes mount at /runs, as a shared file system.
        may_mount: whether users may mount within their own namespace, as on any machine with
            Charliecloud. By default, a container's users may not.
        containers: the containers by host name.
    """

    bench: Workbench
    image: str
    network: str
    volume: str
    may_mount: bool = False
    containers: dict[str, Container] = field(default_factory=dict)

    @property
    def entrypoint(self) -> Sequence[str]:
        """The entrypoint of the image, which a container runtime starts."""
        return self.bench.inspect_image().attrs["Config"]["Entrypoint"]

    def start(self, name: str) -> None:
        """Start the controller, or a node."""
        networking = {self.network: self.bench.client.api.create_endpoint_config(aliases=[name])}
        unconfined = [f"{module}=unconfined" for module in ("seccomp", "apparmor")]
        container = self.bench.client.containers.create(
            self.image,
            name=f"{self.network}-{name}",
            hostname=name,
            entrypoint=["slurm-node"],
            user="0:0",
            network=self.network,
            networking_config=networking,
            volumes=[f"{self.volume}:/runs"],
            mounts=as_mounts(self.bench.packages),
            cap_add=["SYS_ADMIN"] if self.may_mount else [],
            security_opt=unconfined if self.may_mount else [],
        )
        self.containers[name] = container
        container.start()
        if self.may_mount:
            self._unpack(container)

    def _unpack(self, container: Container) -> None:
        """Put the image where `ch-convert` would unpack it, in the same layout."""
        variables = "\n".join(self.bench.inspect_image().attrs["Config"]["Env"])
        put = (
            f"mkdir -p {UNPACKED} /ch && printf '%s\\n' \"$1\" > /ch/environment"
            f" && mount --rbind / {UNPACKED}"
        )
        code, out = container.exec_run(["bash", "-c", put, "bash", variables], user="0:0")
        assert code == 0, out

    def ask(self, *command: str) -> str:
        """Run a command in the controller as the jobs' user, and return its standard output.

        Raises:
            AssertionError: it failed; the message contains its output.
        """
        code, (out, err) = self.containers[CONTROLLER].exec_run(
            list(command), user=USER, workdir="/runs", demux=True
        )
        assert code == 0, (command, code, out, err)
        return (out or b"").decode()

    def read(self, path: str) -> str:
        """Return the text of a file, which may not exist yet."""
        return self.ask("sh", "-c", f"cat {shlex.quote(path)} 2> /dev/null || true")

    def submit(self, command: Sequence[str], runs: str, *options: str, **variables: object) -> Job:
        """Submit a job whose two tasks run the command; `options` are those of `sbatch`.

        Slurm passes the submitter's variables to the tasks.
        """
        srun = f"exec srun --label --kill-on-bad-exit=0 {shlex.join(command)}"
        settings = {"TRAINER_RUN_DIR": runs, **variables}
        given = [f"{name}={value}" for name, value in settings.items()]
        number = self.ask(
            *("env", *given, "sbatch", "--parsable", "--nodes=2", "--ntasks-per-node=1"),
            *("--exclusive", "--output=/runs/%j.log", "--open-mode=append"),
            *(*options, f"--wrap={srun}"),
        )
        return Job(self, number.strip(), runs)

    def submit_file(self, text: str, name: str) -> Job:
        """Submit a batch file. Its results go to the folder of this name in /runs."""
        submit = 'printf %s "$1" | sbatch --parsable --output=/runs/%j.log'
        return Job(self, self.ask("bash", "-c", submit, "bash", text).strip(), f"/runs/{name}")

    def kill(self, node: str) -> None:
        """Kill all processes of a node, as a loss of power does."""
        self.containers[node].kill()

    def wait_until_idle(self) -> None:
        """Wait until jobs can run on all nodes."""
        states = "sinfo --noheader --Node --format=%T | sort --unique"
        self.wait(f'[ "$({states})" = idle ]', UP_SECONDS, "all nodes are idle", self.logs)

    def wait(
        self, condition: str, timeout_seconds: float, what: str, logs: Callable[[], str]
    ) -> None:
        """Wait until a shell condition is true; a loop in the controller checks it.

        Raises:
            WaitError: it was not true in time.
        """
        wait_inside(self.containers[CONTROLLER], condition, timeout_seconds, what, logs, user=USER)

    def logs(self) -> str:
        """Return the logs of Slurm's daemons."""
        said = [(name, one.logs().decode()) for name, one in self.containers.items()]
        return "\n".join(f"{name}:\n{text}" for name, text in said)

    def remove(self) -> None:
        """Remove the containers, the network and the volume."""
        for container in self.containers.values():
            container.remove(force=True, v=True)
        self.bench.client.networks.get(self.network).remove()
        self.bench.client.volumes.get(self.volume).remove()


@contextmanager
def slurm_image(bench: Workbench) -> Iterator[str]:
    """Build the image under test with Debian's Slurm in it, and remove it at the end."""
    tag = f"{bench.new_name('image')}:slurm"
    bench.client.images.build(
        path=str(FOLDER), buildargs={"IMAGE": bench.image}, tag=tag, rm=True, forcerm=True
    )
    try:
        yield tag
    finally:
        bench.client.images.remove(tag, force=True)


@contextmanager
def slurm_cluster(
    bench: Workbench, image: str, *, may_mount: bool = False
) -> Iterator[SlurmCluster]:
    """Start a cluster whose nodes are idle, and remove it at the end."""
    network = bench.client.networks.create(bench.new_name("network"), internal=True)
    volume = bench.client.volumes.create(bench.new_name("volume"))
    cluster = SlurmCluster(bench, image, network.name, volume.name, may_mount)
    try:
        for name in (CONTROLLER, *NODES):
            cluster.start(name)
        cluster.wait_until_idle()
        yield cluster
    finally:
        cluster.remove()

"""Start Python processes that have Keras imported already, in a fraction of a second.

A server process imports Keras once, with the engine off, and runs no operation. It forks for each
start. The fork then calls what the import would have called, with its own variables.
"""

import atexit
import multiprocessing
import multiprocessing.connection
import multiprocessing.forkserver
import os
import runpy
import subprocess
import sys
import threading
from pathlib import Path

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["keras"])
OF_A_START = ("TF_CONFIG", "START_ID", "END_MARKS")
# multiprocessing can read an exit code only once. If two threads read it at the same time, one gets
# the code and the other gets 255, and the later result stays.
READS = threading.Lock()


class Fork:
    """A process with the part of Popen's interface that the tests use, from any thread."""

    def __init__(self, process):
        self._process, self.pid = process, process.pid

    def poll(self):
        """Return the exit code, negative for a signal; None while it runs."""
        with READS:
            return self._process.exitcode

    def wait(self, seconds=None):
        """Return the exit code once it has ended.

        Raises:
            TimeoutExpired: it has not ended in time.
        """
        multiprocessing.connection.wait([self._process.sentinel], seconds)
        if self.poll() is None:
            raise subprocess.TimeoutExpired(str(self.pid), seconds)
        return self.poll()


def start(command, environ, output, *, folder=None, asks=None):
    """Start `python *command` as a fork; the command is a script, or `-m` and a module.

    The fork has the variables `environ` and the socket `asks` of its group. It prints to the file
    `output`.
    """
    _begin_server()
    folder = folder or Path.cwd()
    arguments = (list(map(str, command)), dict(environ), str(output), str(folder), asks)
    process = SERVER.Process(target=_run, args=arguments)
    with READS:
        process.start()  # also reads the exit codes of processes that have ended
    return Fork(process)


def _begin_server():
    """Start the server without the variables of this process's own start."""
    before = dict(os.environ)
    for name in OF_A_START:
        os.environ.pop(name, None)
    os.environ["CLUSTER_TRAINER_ENGINE"] = "off"
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)


def _run(command, environ, output, folder, asks):
    """Run the command in the fork, and end the fork with its exit code."""
    os.setsid()
    os.environ.clear()
    os.environ.update(environ)
    if asks is not None:
        asks.set_inheritable(True)
        os.environ["CLUSTER_GROUP_FD"] = str(asks.detach())
    into = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for descriptor in (1, 2):
        os.dup2(into, descriptor)
    os.chdir(folder)
    code = _code_of(command)
    threading._shutdown()  # noqa: SLF001  waits for threads, as Python does at its end
    atexit._run_exitfuncs()  # noqa: SLF001
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _code_of(command):
    """Run the command to its end, and return the exit code."""
    try:
        _as_if_imported(is_script=command[0] != "-m")
        if command[0] == "-m":
            sys.argv = command[1:]
            runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv, sys.path[0] = command, str(Path(command[0]).parent)
            runpy.run_path(command[0], run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as error:  # noqa: BLE001  as Python itself
        sys.excepthook(type(error), error, error.__traceback__)
        sys.last_value = error
        return 1
    return 0


def _as_if_imported(*, is_script):
    """Do what the import of TensorFlow and Keras does with a process's variables."""
    import numpy as np  # noqa: PLC0415  not in the tests' process

    from cluster_trainer import hook  # noqa: PLC0415
    from cluster_trainer.distribution.of_script import set_devices_of_script  # noqa: PLC0415
    from cluster_trainer.processors import threads_of_script  # noqa: PLC0415

    np.random.seed()  # noqa: NPY002  else all forks draw the same
    os.environ.update(threads_of_script(os.environ))
    if is_script and any(os.environ.get(name) for name in hook.DEVICES):
        set_devices_of_script(os.environ)
    hook.install()

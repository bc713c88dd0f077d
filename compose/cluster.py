"""Clusters, here or on machines: `python3 compose/cluster.py COMMAND`, with Python 3.9 or later.

  up                  run a cluster from start to end, and exit with its exit code
  up --hosts "ana@10.0.0.1 ana@10.0.0.2 gpus=0,1"
                      the same on several machines, by SSH; Ctrl-C leaves it running
  attach              show a cluster on several machines again
  fetch               copy its results here
  replace HOST BY     give a worker another machine
  stop [WORKER]       stop the cluster at a checkpoint, or stop one worker while the others wait
  resume [WORKER]     resume a run, or start a stopped worker again
  status [--json]     show the status of each worker
  down, logs, ps      remove the workers, follow their output, list them
  tensorboard         show all runs in a browser, until Ctrl-C
  report              write a page about a run, or about two
  data prepare NAME   prepare a TensorFlow Datasets set
  data sample NAME... make small samples of sets from the pictures in .build/pictures

Settings are variables (WORKERS=4 TRAINER_EPOCHS=5 ...), or lines of .env: docs/reference/make.md.
While the project has a cluster on several machines, the commands apply to that cluster.

Exit codes: 0 for success, 78 for a wrong setting, 1 if Docker failed. `up`, `attach` and `resume`
also exit with the code of the worker that failed first, and with 129, 130 or 143 after a signal.
`tensorboard`, `report` and `data` also exit with the codes of `docker run`.
"""

import os
import sys

if sys.version_info < (3, 9):  # noqa: UP036 -- the python3 of macOS and older Linux may be older
    sys.exit(
        "cluster-trainer: Python 3.9 or later is needed; this is " + sys.version.split()[0] + "."
    )

# Under sudo, root would own the bytecode in the user's folder.
sys.dont_write_bytecode = True

from local_cluster.main import main  # noqa: E402 -- an older Python cannot parse it

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ, str(__doc__)))

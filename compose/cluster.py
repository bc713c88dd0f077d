"""Clusters, here or on machines: `python3 compose/cluster.py COMMAND`, with Python 3.9 or later.

  up                  run a cluster from start to end; its result is the exit code
  up --hosts "ana@10.0.0.1 ana@10.0.0.2 gpus=0,1"
                      the same on several machines, by SSH; Ctrl-C leaves it running
  attach              show a cluster on several machines again
  fetch               copy its results here
  replace HOST BY     give a worker another machine
  stop [WORKER]       stop the cluster at a checkpoint, or one worker, for which the others wait
  resume [WORKER]     go on with a run, or start a stopped worker again
  status [--json]     show what each worker is at
  down, logs, ps      remove the workers, follow their lines, list them
  tensorboard         show all runs in a browser, until Ctrl-C
  report              write a page about a run, or two
  data prepare NAME   prepare a TensorFlow Datasets set
  data sample NAME...   make small samples of sets from the pictures in .build/pictures

What it takes is in variables (WORKERS=4 TRAINER_EPOCHS=5 ...) or in .env: docs/reference/make.md.
While the project has a cluster on several machines, the commands are about that one.
Exit codes: 0; 78 for a mistake in what was given; 1 where the engine cannot do it; of `up`,
`attach` and `resume` also those of the worker that failed first, and 129, 130 or 143 when told to
stop; of `tensorboard`, `report` and `data` those of `docker run`.
"""

import os
import sys

if sys.version_info < (3, 9):  # noqa: UP036 -- macOS and older Linux have such a python3
    sys.exit(
        "cluster-trainer: Python 3.9 or later is needed; this is " + sys.version.split()[0] + "."
    )

# Under sudo the bytecode would lie in the user's folder and belong to root.
sys.dont_write_bytecode = True

from local_cluster.main import main  # noqa: E402 -- an older Python could not even read it

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ, str(__doc__)))

"""TensorFlow's messages tell a lost peer from a fault of this worker.

Most messages come from TensorFlow 2.21 on two and three workers, one of which was killed, frozen or
made to fail. The others are in the libraries of TensorFlow, NCCL and CUDA.
"""

import pytest
import tensorflow as tf

from cluster_trainer.problems import ExitCode
from cluster_trainer.process.exit_code import judge

errors = tf.errors
ABOVE = """Graph execution error:

Detected at node while/CollectiveReduceV2 defined at (most recent call last):
  File "/opt/cluster-trainer/trainer/loop.py", line 84, in train

"""
BELOW = """
The error could be from a previous operation. Restart your program to reset.
\t [[{{node while/CollectiveReduceV2}}]] [Op:__inference_steps_106]"""


def from_remote(what, call):
    """Return the message of a failed call to another worker."""
    return (
        f"Collective ops is aborted by: {what}\nAdditional GRPC error information from remote "
        f"target /job:worker/replica:0/task:1 while calling /tensorflow.WorkerService/{call}:\n"
        f':UNKNOWN:Error received from peer  {{grpc_status:14, grpc_message:"{what}"}}'
    )


def from_devices(what):
    """Return the message after a failure of several devices of this worker."""
    return f"2 root error(s) found.\n  (0) RESOURCE_EXHAUSTED:  {what}\n  (1) CANCELLED:  derived"


OUT_OF_MEMORY = """OOM when allocating tensor with shape[1000000,1000000,100] and type float
\t [[{{node while/cond/zeros}}]]"""
UNHEALTHY = """Collective ops is aborted by: Error reported from /job:worker/task:1:
The following tasks are unhealthy (stopped sending heartbeats):\n/job:worker/replica:0/task:1"""
LEADER_IS_SILENT = """Collective ops is aborted by: Deadline Exceeded
RPC: /tensorflow.CoordinationService/ProgressDisplay"""
NEWER = "/job:worker/task:1 unexpectedly tried to connect with a different incarnation."
RESTARTED = "Check your worker job for the reason why it was restarted."
SLOW_SUM = "Collective has timed out waiting for other workers."
NCCL_REMOTE = "NCCL: remote process exited or there was a network error."
ILLEGAL_ADDRESS = "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered"
GPU_OUT_OF_MEMORY = (
    "Failed copying input tensor from CPU:0 to GPU:0: Dst tensor is not initialized."
)
OTHER_SUM = "Collective instance 104 expected data_type 1 but got type 1 and data_type 2"
NCCL_LOCAL = "Collective ops is aborted by: NCCL: unhandled cuda error"

PEER_IS_GONE = {
    "killed": (errors.UnavailableError, from_remote("Connection reset by peer", "RecvBuf")),
    "chief-killed": (errors.UnavailableError, from_remote("Socket closed", "CompleteInstance")),
    "fault-told": (errors.ResourceExhaustedError, from_remote(OUT_OF_MEMORY, "RecvBuf")),
    "frozen": (errors.UnavailableError, UNHEALTHY),
    "chief-frozen": (errors.DeadlineExceededError, LEADER_IS_SILENT),
    "restarted": (errors.AbortedError, NEWER),
    "restarted-and-met": (errors.FailedPreconditionError, RESTARTED),
    "late-to-a-barrier": (errors.DeadlineExceededError, "Barrier timed out. Id: WaitForAllTasks."),
    "late-to-a-sum": (errors.DeadlineExceededError, SLOW_SUM),
    "gpus": (errors.InternalError, NCCL_REMOTE),
    "cancelled": (errors.CancelledError, "Function was cancelled before it was started"),
    "in-doubt": (errors.UnavailableError, "failed to connect to all addresses"),
}
SOMETHING_BROKE_HERE = {
    "out-of-memory": (errors.ResourceExhaustedError, OUT_OF_MEMORY),
    "on-several-devices": (errors.ResourceExhaustedError, from_devices(OUT_OF_MEMORY)),
    "index": (errors.InvalidArgumentError, "indices = 7 is not in [0, 5)"),
    "own-function": (errors.UnknownError, "RuntimeError: my own numpy function broke"),
    "gpu": (errors.InternalError, ILLEGAL_ADDRESS),
    "gpu-out-of-memory": (errors.InternalError, GPU_OUT_OF_MEMORY),
    "gpu-in-a-sum": (errors.InternalError, NCCL_LOCAL),
    "another-sum-than-here": (errors.InternalError, f"Collective ops is aborted by: {OTHER_SUM}"),
    "slow-disk": (errors.DeadlineExceededError, "Timed out while reading a file"),
}


def code_and_reason(case, num_workers):
    kind, message = case
    return judge(kind(None, None, ABOVE + message + BELOW), num_workers)


@pytest.mark.parametrize("case", PEER_IS_GONE.values(), ids=PEER_IS_GONE)
def test_a_peer_that_is_gone_is_said_to_be_lost(case):
    code, reason = code_and_reason(case, num_workers=3)
    assert code == ExitCode.PEER_LOST
    assert reason.startswith("a peer was lost (")


@pytest.mark.parametrize("case", SOMETHING_BROKE_HERE.values(), ids=SOMETHING_BROKE_HERE)
def test_a_fault_of_this_worker_is_a_crash_with_its_own_text(case):
    code, reason = code_and_reason(case, num_workers=3)
    assert code == ExitCode.CRASHED
    said = case[1].partition("RESOURCE_EXHAUSTED:  ")[2] or case[1]
    assert said.splitlines()[0] in reason


@pytest.mark.parametrize("case", PEER_IS_GONE.values(), ids=PEER_IS_GONE)
def test_one_worker_has_no_peer_to_lose(case):
    assert code_and_reason(case, num_workers=1)[0] == ExitCode.CRASHED


def test_the_reason_is_the_line_that_says_something():
    _, reason = code_and_reason(PEER_IS_GONE["killed"], num_workers=2)
    said = "Collective ops is aborted by: Connection reset by peer"
    assert reason == f"a peer was lost (UnavailableError: {said})"


def test_an_error_that_is_not_tensorflows_is_a_crash_whatever_it_says():
    code, reason = judge(RuntimeError("my barrier timed out, the heartbeat too"), 3)
    assert (code, reason) == (1, "RuntimeError: my barrier timed out, the heartbeat too")

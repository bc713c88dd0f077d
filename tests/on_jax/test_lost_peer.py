"""The errors of JAX that mean the loss of another worker."""

import jax
import numpy as np
import pytest

from cluster_trainer.on_jax.workers.lost_peer import tells_of_lost_peer

CLOSED = "[external/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:5559"

EXITED = "remote process exited or there was a network error"
CALLING = "while calling /xla.coordination.CoordinationService/GetKeyValue:"


@pytest.mark.parametrize(
    "text",
    [
        f"UNKNOWN: Gloo all-reduce failed: {CLOSED}",
        f"UNKNOWN: Gloo AllGather failed: {CLOSED}",
        "UNKNOWN: Gloo context initialization failed: DEADLINE_EXCEEDED: GetKeyValue() timed out",
        f"INTERNAL: NCCL operation ncclGroupEnd() failed: {EXITED}",
        f"UNAVAILABLE: recvmsg:Connection reset by peer\n{CALLING}",
        "UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):\n1\n",
        "INTERNAL: Barrier failed. [type.googleapis.com/tensorflow.CoordinationServiceError='']",
    ],
)
def test_knows_the_errors_of_gloo_nccl_and_the_coordination_service(text):
    assert tells_of_lost_peer(jax.errors.JaxRuntimeError(text))


@pytest.mark.parametrize(
    "text",
    [
        "INTERNAL: CpuCallback error calling callback: ValueError: connection to my database",
        f"INTERNAL: CpuCallback error calling callback: Gloo all-reduce failed: {CLOSED}",
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8 bytes, connection",
        "INVALID_ARGUMENT: the socket of my layer was aborted",
        "INTERNAL: NCCL operation ncclGroupEnd() failed: unhandled cuda error",
    ],
)
def test_other_errors_are_this_workers_own(text):
    assert not tells_of_lost_peer(jax.errors.JaxRuntimeError(text))


def test_an_error_of_a_user_is_never_a_lost_peer():
    def own(_):
        raise ValueError(f"Gloo all-reduce failed: {CLOSED}")

    @jax.jit
    def step(value):
        return jax.pure_callback(own, jax.ShapeDtypeStruct((), np.float32), value)

    with pytest.raises(jax.errors.JaxRuntimeError) as error:
        step(np.float32(1)).block_until_ready()
    assert not tells_of_lost_peer(error.value)
    assert not tells_of_lost_peer(ConnectionError(f"Gloo all-reduce failed: {CLOSED}"))

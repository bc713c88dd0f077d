"""The variants: ways to train one network, on one worker and on several."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

TRAINER = {
    "TRAINER_MODEL": "mnist_cnn",
    "TRAINER_DATASET": "made_up:digits",
    "TRAINER_PER_REPLICA_BATCH_SIZE": "64",
    "TRAINER_OPTIMIZER": "sgd",
}
MOBILENET = {
    "TRAINER_MODEL": "mobilenet_v2",
    "TRAINER_DATASET": "made_up:pictures",
    "TRAINER_PER_REPLICA_BATCH_SIZE": "32",
}
RING = {"TRAINER_COLLECTIVES": "ring"}
BFLOAT16 = RING | {"TRAINER_WIRE": "bfloat16"}
TENSORFLOW = {"TRAINER_COLLECTIVES": "tensorflow"}
TORCH = "cluster-trainer-benchmark:torch"
EVERY_STEPS = 320
"""The steps of an epoch that has only whole rounds."""
AUTO = BFLOAT16 | {"TRAINER_SYNC_EVERY": "auto", "TRAINER_CHECKPOINT_STEPS": "100000"}
"""`auto` needs the checkpoint of step 0."""
GBIT, MBIT_100, MBIT_20 = 1_000_000_000, 100_000_000, 20_000_000


@dataclass(frozen=True)
class Variant:
    """A way to train.

    Attributes:
        what: a description.
        workers: the number of containers, each with one processor.
        settings: their environment.
        command: the command of each, instead of the trainer.
        steps: the steps of an epoch, which takes seconds, so that calls and starts hardly count.
        ideal: the variant whose rate, times the workers, is the upper bound.
        beside: variants that this one's rate is divided by.
        together: whether the workers form a cluster; otherwise each trains alone.
        bits_a_second: the rate at which a worker can send; None: no limit.
        late_seconds: an additional delay of all data.
        image: another image than the one that is measured.
    """

    what: str
    workers: int = 2
    settings: Mapping[str, str] = field(default_factory=dict)
    command: Sequence[str] = ()
    steps: int = 400
    ideal: str = ""
    beside: Sequence[str] = ()
    together: bool = True
    bits_a_second: int | None = None
    image: str | None = None
    late_seconds: float = 0.0


def _script(name: str) -> tuple[str, ...]:
    return "python", f"/workspace/{name}.py"


def _at(rate: int, steps: int) -> dict[str, Variant]:
    """Return the variants for workers that send at this rate."""
    short, words = ("1gbit", "1 Gbit/s") if rate == GBIT else ("100mbit", "100 Mbit/s")
    float32 = f"ring-{short}"
    link = {"steps": steps, "bits_a_second": rate}
    return {
        float32: Variant(f"ring, {words}", 2, TRAINER | RING, ideal="one", **link),
        f"bfloat16-{short}": Variant(
            f"ring, bfloat16, {words}",
            2,
            TRAINER | BFLOAT16,
            ideal="one",
            beside=(float32,),
            **link,
        ),
        **{
            f"every-{every}-{short}": Variant(
                f"ring, weights averaged every {every} steps, {words}",
                2,
                TRAINER | RING | {"TRAINER_SYNC_EVERY": f"{every}"},
                ideal="one",
                beside=(float32,),
                **(link | {"steps": EVERY_STEPS}),
            )
            for every in (16, 64)
        },
        f"tensorflow-{short}": Variant(
            f"TensorFlow's collectives, {words}",
            2,
            TRAINER | TENSORFLOW,
            ideal="one",
            beside=(float32,),
            **link,
        ),
    }


MNIST = {
    "one": Variant("one worker", 1, TRAINER),
    "apart": Variant(
        "two of these at once, each by itself", 2, TRAINER, ideal="one", together=False
    ),
    "ring": Variant(
        "ring", 2, TRAINER | RING, ideal="one", beside=("tensorflow", "legacy", "torch")
    ),
    "bfloat16": Variant(
        "ring, bfloat16", 2, TRAINER | BFLOAT16, ideal="one", beside=("ring", "tensorflow")
    ),
    "tensorflow": Variant(
        "TensorFlow's collectives", 2, TRAINER | TENSORFLOW, ideal="one", beside=("legacy",)
    ),
    "plain": Variant(
        "a plain script's fit, ring", 2, RING, _script("plain"), ideal="one", beside=("ring",)
    ),
    "strategy": Variant(
        "Keras's own fit (repaired, without the engine), MultiWorkerMirroredStrategy",
        2,
        {"CLUSTER_TRAINER_ENGINE": "off"},
        _script("strategy"),
        steps=200,
        ideal="one",
    ),
    "legacy": Variant(
        "the tutorial's script, legacy Keras",
        2,
        {"TF_USE_LEGACY_KERAS": "1"},
        _script("tutorial"),
        steps=150,
        ideal="one",
    ),
}
LEVERS = {
    "plain-one": Variant("a plain script's fit, one worker", 1, {}, _script("plain"), ideal="one"),
    "jit-one": Variant(
        "the same with jit_compile=True",
        1,
        {"BENCH_JIT": "1"},
        _script("plain"),
        beside=("plain-one",),
    ),
    "jit": Variant(
        "jit_compile=True between the ring's sums",
        2,
        RING | {"BENCH_JIT": "1"},
        _script("plain"),
        beside=("plain",),
    ),
    "stepwise": Variant(
        "ring, one step per call",
        2,
        TRAINER | RING | {"TRAINER_STEPS_PER_CALL": "1"},
        steps=200,
        ideal="one",
        beside=("ring",),
    ),
}
TORCHES = {
    "torch-one": Variant(
        "PyTorch, one worker", 1, command=_script("torch_ddp"), image=TORCH, steps=200
    ),
    "torch": Variant(
        "PyTorch DDP over gloo",
        2,
        command=_script("torch_ddp"),
        image=TORCH,
        steps=200,
        ideal="torch-one",
    ),
}
MOBILENETS = {
    "mobilenet-one": Variant("mobilenet_v2, 64x64, one worker", 1, MOBILENET, steps=10),
    "mobilenet-apart": Variant(
        "two of these at once, each by itself",
        2,
        MOBILENET,
        steps=10,
        ideal="mobilenet-one",
        together=False,
    ),
    "mobilenet": Variant(
        "mobilenet_v2, 64x64, ring", 2, MOBILENET | RING, steps=10, ideal="mobilenet-one"
    ),
    "mobilenet-tensorflow": Variant(
        "mobilenet_v2, 64x64, TensorFlow's collectives",
        2,
        MOBILENET | TENSORFLOW,
        steps=10,
        ideal="mobilenet-one",
    ),
    "mobilenet-1gbit": Variant(
        "mobilenet_v2, 64x64, ring, 1 Gbit/s",
        2,
        MOBILENET | RING,
        steps=10,
        ideal="mobilenet-one",
        bits_a_second=GBIT,
    ),
}
AUTOS = {
    f"auto-{short}": Variant(
        f"ring, TRAINER_SYNC_EVERY=auto and bfloat16, {words}",
        2,
        TRAINER | AUTO,
        steps=EVERY_STEPS,
        ideal="one",
        beside=("apart", "one"),
        bits_a_second=rate,
        late_seconds=late,
    )
    for short, words, rate, late in (
        ("1gbit", "1 Gbit/s", GBIT, 0.0),
        ("100mbit", "100 Mbit/s", MBIT_100, 0.0),
        ("home", "20 Mbit/s and a round trip of 40 ms", MBIT_20, 0.02),
    )
}
VARIANTS = MNIST | LEVERS | AUTOS | TORCHES | MOBILENETS | _at(GBIT, 200) | _at(MBIT_100, 40)
"""All variants, by their names on the command line."""

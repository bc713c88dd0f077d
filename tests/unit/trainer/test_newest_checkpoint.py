"""The checkpoint that counts where some of the workers are new to the others."""

from dataclasses import dataclass

import numpy as np
import pytest

from cluster_trainer.checkpoints.checkpoint import KEPT_STATE, RUN, Checkpoint, Stage
from cluster_trainer.checkpoints.resume import Found, find_newest
from cluster_trainer.checkpoints.store import Store
from cluster_trainer.collectives.ring.ring import Ring
from cluster_trainer.problems import ConfigurationError
from cluster_trainer.settings.task import Task
from harness.rings import outcomes, rings

VARIABLES = ("dense/kernel float32[2]", "adam/iteration int64[]")
NEW = 2


def checkpoint(step: int, stage: Stage = Stage.EPOCH, **fields: object) -> Checkpoint:
    """Return a checkpoint. Within an epoch, it also has states of metrics."""
    states = 3 if stage == Stage.TRAINING else 1
    names = [*VARIABLES, *(f"{KEPT_STATE}{index}" for index in range(states))]
    made = {"settings": {"TRAINER_SEED": "42"}, "progress": {}, "names": names}
    made["arrays"] = [np.full(2, step, np.float32)] * len(names)
    return Checkpoint(step, stage, **made | fields)  # type: ignore[arg-type]


@dataclass
class OfRing:
    """The exchange between workers over a ring. The last rank is new."""

    ring: Ring
    newcomers: frozenset[int] = frozenset({NEW})

    @property
    def rank(self) -> int:
        return self.ring.rank

    @property
    def members(self) -> tuple[int, ...]:
        return self.ring.members

    def gather(self, number: int, what: str) -> list[int]:
        rows = self.ring.all_gather(number.to_bytes(8, signed=True), what=what)
        return [int.from_bytes(row, signed=True) for row in rows]

    def broadcast(self, content: bytes | None, holder: int, what: str) -> bytes:
        return self.ring.broadcast(content, holder, what=what)


@pytest.fixture
def stores(tmp_path):
    return [Store(tmp_path / f"{rank}") for rank in range(NEW + 1)]


def have(stores: list[Store], *kept: Checkpoint | None) -> None:
    """Give each worker a checkpoint, or none."""
    for store, one in zip(stores, kept, strict=True):
        if one:
            store.write(one.number, one.to_bytes())


def found(stores: list[Store]) -> list[Found | Exception | None]:
    """Return the checkpoint or the error that each worker finds."""
    with rings(len(stores)) as made:
        return outcomes(
            made,
            lambda ring: find_newest(
                stores[ring.rank], OfRing(ring), Task("worker", ring.rank, len(stores))
            ),
        )


def steps(stores: list[Store]) -> list[int]:
    """Return the step from which each worker resumes."""
    results = found(stores)
    assert all(isinstance(one, Found) for one in results), results
    return [one.checkpoint.step for one in results]  # type: ignore[union-attr]


def test_a_newer_one_with_other_states_of_metrics_is_not_refused(stores) -> None:
    have(stores, checkpoint(10), None, checkpoint(13, Stage.TRAINING))
    assert steps(stores) == [10] * 3


def test_nor_is_one_whose_layers_were_counted_otherwise(stores) -> None:
    names = [name.replace("dense", "dense_3") for name in VARIABLES]
    have(stores, checkpoint(10), None, checkpoint(13, names=names, arrays=[np.ones(2)] * 2))
    assert steps(stores) == [10] * 3


def test_what_a_newcomer_does_not_go_on_from_is_not_found_later_either(stores) -> None:
    have(stores, checkpoint(10), None, checkpoint(1000, Stage.ALL))
    assert steps(stores) == [10] * 3
    assert stores[NEW].newest() is None


@pytest.mark.parametrize("holder", [0, 1])
def test_of_the_same_run_the_newest_counts_whoever_has_it(stores, holder) -> None:
    """For example, the disks of the others have been full since step 10."""
    known: list[Checkpoint | None] = [None, None, checkpoint(300, progress={RUN: 5})]
    known[holder] = checkpoint(10, progress={RUN: 5})
    have(stores, *known)
    assert steps(stores) == [300] * 3
    assert stores[NEW].newest().number == checkpoint(300).number


@pytest.mark.parametrize(
    ("mine", "theirs"), [(5, 7), (0, 7), (5, 0), (0, 0)], ids=["other", "old", "of old", "both old"]
)
def test_what_may_be_of_another_run_is_removed_with_a_warning(
    stores, warnings, mine, theirs
) -> None:
    progress = [{RUN: number} if number else {} for number in (mine, theirs)]
    others = checkpoint(10, progress=progress[1])
    have(stores, others, others, checkpoint(300, progress=progress[0]))
    assert steps(stores) == [10] * 3
    assert stores[NEW].newest() is None
    assert "the checkpoint of step 300 on this worker's disk" in warnings.text
    assert "all workers resume from step 10" in warnings.text


def test_where_nobody_else_has_one_a_newcomers_counts(stores) -> None:
    have(stores, None, None, checkpoint(300))
    assert steps(stores) == [300] * 3


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"settings": {"TRAINER_SEED": "7"}}, "TRAINER_SEED"),
        ({"names": ["own/kernel float32[2]"], "arrays": [np.ones(2)]}, "own/kernel"),
    ],
)
def test_another_runs_is_refused_on_the_newcomer_alone(stores, fields, said) -> None:
    have(stores, checkpoint(10), None, checkpoint(13, **fields))
    first, second, refused = found(stores)
    assert isinstance(refused, ConfigurationError)
    assert said in str(refused)
    assert [one.checkpoint.step for one in (first, second)] == [10, 10]
    assert stores[NEW].newest().number == checkpoint(13).number  # only the user may remove it

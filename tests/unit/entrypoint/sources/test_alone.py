"""A worker that finds no cluster, though a scheduler's variables speak of others, says so."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from entrypoint.sources.alone import INDICES, NUMBERS, alone_warning
from harness.contracts import view


@pytest.mark.parametrize("name", NUMBERS)
def test_several_processes_without_a_cluster_are_a_warning(name: str) -> None:
    assert alone_warning(view(**{name: "2"})).startswith(f"{name}=2, but no variable names")


@pytest.mark.parametrize("name", INDICES)
@pytest.mark.parametrize("index", ["0", "1"])
def test_an_index_without_a_list_is_a_warning(name: str, index: str) -> None:
    assert "trains alone" in alone_warning(view(**{name: index}))


@pytest.mark.parametrize(
    "variables",
    [
        {},
        dict.fromkeys(NUMBERS, "1"),
        dict.fromkeys((*NUMBERS, *INDICES), "x"),
        {"WORLD_SIZE": "2", "CLUSTER_SOURCE": "none"},
        {"SLURM_PROCID": "0", "SLURM_JOB_NUM_NODES": "1"},  # a batch script
    ],
)
def test_one_process_and_an_own_choice_are_none(variables: dict[str, str]) -> None:
    assert alone_warning(view(**variables)) == ""


def test_sruns_first_task_without_the_list_of_nodes_is_a_warning() -> None:
    assert alone_warning(view(SLURM_PROCID="0")).startswith("SLURM_PROCID=0, but no variable")


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("true",), ("explain", "true")])
def test_a_batch_script_without_srun_says_that_it_trains_alone(
    run: Callable, arguments: tuple[str, ...]
) -> None:
    of_a_batch_script = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_JOB_NUM_NODES": "2"}
    ended = run(*arguments, **of_a_batch_script)
    assert ended.code == 0
    assert "SLURM_NTASKS=2, but no variable names the workers" in ended.stderr
    assert "srun" in ended.stderr


@pytest.mark.slow
def test_a_worker_of_a_cluster_says_nothing_of_that(run: Callable) -> None:
    ended = run("true", WORKER_HOSTS="a,b", JOB_COMPLETION_INDEX="1", WORLD_SIZE="2")
    assert "alone" not in ended.stderr

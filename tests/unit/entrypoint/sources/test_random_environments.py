"""Random environments are resolved or refused, without a traceback or a hang."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from entrypoint.cluster.own_machine import Machine
from entrypoint.errors import ConfigurationError, render
from entrypoint.settings.command_environment import command_environment
from entrypoint.settings.environ import read_environ
from entrypoint.settings.options import VARIABLES
from entrypoint.sources import SOURCES, tf_config, variables_of, with_contract_settings
from entrypoint.sources.own_task import find_own_task
from entrypoint.sources.resolve import resolve
from entrypoint.start_messages.explanation import as_json, as_text

BYTES = st.binary(max_size=30).map(lambda data: os.fsdecode(data.replace(b"\0", b"")))
LIKELY = st.sampled_from(
    [
        "",
        "0",
        "1",
        "-1",
        "none",
        "auto",
        "tf_config",
        "worker_hosts",
        "a:1,b:1",
        "a:1",
        "localhost:1 localhost:2",
        "[::1]:1",
        "a:0,,b:99999",
        '{"cluster":{"worker":["a:1","b:1"]},"task":{"type":"worker","index":1}}',
        '{"cluster":{"chief":["a:1"],"worker":["b:1"]},"task":{"type":"chief","index":"0"}}',
        '{"cluster":{"worker":["a:1"]},"task":{"type":"evaluator","index":0}}',
        '{"cluster":{"ps":["a:1"]}}',
        '["a","b"]',
        "a",
        "a\nb",
        "2",
        "n[1-2]",
        "1(x2)",
        "1:4",
        "job-node-0-0.job",
        '{"cluster":{"workerpool0":["a:1"]},"task":{"type":"workerpool0","index":0}}',
        '{"epochs":"5","model_dir":"s3://b"}',
        "gs://bucket/model",
        *SOURCES,
        "hosts",
        "missing",
        "/",
        "/dev/zero",
    ],
)
NAMES = st.sampled_from(
    [
        *VARIABLES,
        *(f"{name}_FILE" for name in VARIABLES),
        *(name for source in SOURCES.values() for name in variables_of(source)),
        "SM_HPS",
        "SM_HP_EPOCHS",
        "SM_CHANNEL_TRAIN",
        "SM_MODEL_DIR",
        "AIP_MODEL_DIR",
        "SKYPILOT_TASK_ID",
        "SKYPILOT_NUM_GPUS_PER_NODE",
        "TRAINER_EPOCHS",
        "TRAINER_EPOCHS_FILE",
        "TRAINER_TOKEN",
        "OTHER",
    ],
)
ENVIRONMENTS = st.dictionaries(NAMES, LIKELY | BYTES, max_size=6)
MACHINE = Machine("a", lambda address: address == "::1", lambda hosts: {h: (h,) for h in hosts})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(ENVIRONMENTS, st.none() | st.binary(max_size=60) | st.just(b"WORKER_HOSTS=a:1\nB=2\n"))
def test_any_environment_is_resolved_or_refused(
    tmp_path: Path,
    environ: dict[str, str],
    dotenv: bytes | None,
) -> None:
    (tmp_path / "hosts").write_text("a:1,b:1\n")
    (tmp_path / ".env").write_bytes(dotenv or b"")
    variables = with_contract_settings(read_environ(environ, tmp_path, root=tmp_path))
    try:
        answer = resolve(variables, lambda found: find_own_task(found, MACHINE))
        environment = command_environment(variables, answer.tf_config_text)
    except ConfigurationError as error:
        assert error.problems  # noqa: PT017 -- both outcomes are right
        render(error.problems).encode()
        return
    assert "\0" not in "".join(environment.values())
    assert json.loads(as_json(variables, answer, ["true"]))["tf_config"] == (
        json.loads(environment["TF_CONFIG"]) if "TF_CONFIG" in environment else None
    )
    assert as_text(variables, answer, ["true"]).encode()
    if answer.resolution:
        again = tf_config.find(read_environ(environment, Path("/nowhere")), 1)
        assert (again.spec, again.task) == (answer.resolution.spec, answer.resolution.task)


@pytest.mark.parametrize("seed", range(5))
def test_a_real_start_with_a_bad_environment_ends_with_78(run: Callable, seed: int) -> None:
    texts = ["\x1b[31m", "é" * 300, "{" * 1000, os.fsdecode(bytes(range(1, 256))), "\n\n"]
    ended = run("true", WORKER_HOSTS=texts[seed], TF_CONFIG=texts[-seed], LC_ALL="C")
    assert ended.code == 78
    assert "Traceback" not in ended.stderr

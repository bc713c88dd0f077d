"""Every variable and every command reaches the worker unchanged."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from entrypoint.export.export import filled_in
from entrypoint.export.options import parse_options
from harness.pods import indexed, of_jobset, of_tfjob, of_trainjob, read_manifests

pytestmark = pytest.mark.slow

IN_PODS = ("kubernetes", "jobset", "trainjob", "tfjob")
IN_YAML = (*IN_PODS, "compose", "swarm")
KINDS = (*IN_YAML, "slurm")
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")) | st.text(
    "${}()\"'\\ \n#:x"
)
NASTY = ["", " ", "'", '"', "\\", "$HOME", "$$(A)", "a\nb", "{{.Node.ID}}", "no", "5", "😀", "\x85"]


def file_with(kind, value):
    return filled_in(
        kind, parse_options([kind, "--env", f"A={value}", "--", "run", value], KINDS)[1]
    )


def expanded(text):
    """Replace `$$` by `$`, as Kubernetes and Compose do. Fail on any other `$`."""
    assert re.fullmatch(r"(?:[^$]|\$\$)*", text), text
    return text.replace("$$", "$")


def read(kind, text):
    """Return the variable A and the command's last word, as a worker would see them."""
    return {"compose": in_compose, "swarm": in_swarm}.get(kind, in_pod)(text)


def in_pod(text):
    found = read_manifests(text)
    pods = {"Job": indexed, "JobSet": of_jobset}
    if "TrainJob" in found:
        first, *_ = of_trainjob(found)
    elif "TFJob" in found:
        first, *_ = of_tfjob(found)
    else:
        (kind,) = set(found) & set(pods)
        first, *_ = pods[kind](found[kind])
    variables = {entry["name"]: entry["value"] for entry in first.container["env"]}
    return expanded(variables["A"]), expanded(first.container["args"][-1])


def in_compose(text):
    worker = yaml.safe_load(text)["services"]["worker-1"]
    return expanded(worker["environment"]["A"]), expanded(worker["command"][-1])


def in_swarm(text):
    worker = yaml.safe_load(text)["services"]["worker"]
    value = expanded(worker["environment"]["A"])
    assert "{{" not in value.replace('{{"{{"}}', "")
    return value.replace('{{"{{"}}', "{{"), expanded(worker["command"][-1])


@pytest.mark.parametrize(
    "kind",
    ["kubernetes", pytest.param("trainjob", marks=pytest.mark.long), "compose", "swarm"],
)
@given(value=TEXTS)
@settings(max_examples=100, deadline=None)
def test_yaml_keeps_every_value(kind, value):
    assert read(kind, file_with(kind, value)) == (value, value)


@pytest.mark.parametrize("kind", IN_YAML)
@pytest.mark.parametrize("value", NASTY)
def test_yaml_keeps_difficult_values(kind, value):
    assert read(kind, file_with(kind, value)) == (value, value)


@given(value=TEXTS)
@settings(max_examples=25, deadline=None)
def test_the_shell_keeps_every_value(tmp_path_factory, value):
    assert_the_shell_keeps(tmp_path_factory.getbasetemp(), value)


@pytest.mark.parametrize("value", NASTY)
def test_the_shell_keeps_difficult_values(tmp_path, value):
    assert_the_shell_keeps(tmp_path, value)


def assert_the_shell_keeps(folder: Path, value: str) -> None:
    text = 'srun() { printf "%s\\0" "$@"; }\n' + file_with("slurm", value)
    ended = subprocess.run(
        ["bash"],
        input=text.encode(),
        capture_output=True,
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin"},
        check=True,
    )
    words = ended.stdout.decode().split("\0")[:-1]
    assert words[words.index("cluster-trainer:cpu") + 1 :] == ["run", value]
    assert f"A={value}" in words

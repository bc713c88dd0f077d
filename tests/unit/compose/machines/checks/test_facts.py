"""The facts that a machine reports about itself."""

import os
import subprocess
from dataclasses import replace

import pytest

from machines.checks import facts, one_machine
from machines.checks.own import NONE
from machines.hosts_setting import Host
from machines.image import Image
from machines.machine import Machine

IMAGE = Image("i:1", "layers", 10**9, "amd64", for_gpus=False)
SSH = 'for last; do :; done\nexec sh -c "$last"'
"""A script that runs the command for the machine here."""


def put(folder, monkeypatch, **programs):
    """Put programs of sh into PATH: an ssh that runs commands here, and a docker that fails."""
    for name, program in ({"ssh": SSH, "docker": "exit 1"} | programs).items():
        file = folder / name.replace("_", "-")
        file.write_text(f"#!/bin/sh\n{program}\n")
        file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def sentence(image=IMAGE):
    """Ask a machine; return the sentence about its answer."""
    (found,) = one_machine.problems(
        facts.ask(Machine(Host("ana@m0"), 0), image, "p", ""), image, NONE
    )
    return found


def test_the_probe_tells_where_a_link_to_the_home_folder_leads(tmp_path):
    (tmp_path / "home/cluster-trainer-runs").mkdir(parents=True)
    (tmp_path / "sets").symlink_to("home")
    script = facts.probe(Machine(Host("ana@m0", data=str(tmp_path / "sets")), 0), IMAGE, "p")
    home = {**os.environ, "HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"}
    ended = subprocess.run(
        ["sh", "-c", script], env=home, capture_output=True, text=True, check=False
    )
    assert f"real_data={tmp_path}/home" in ended.stdout.splitlines(), ended
    assert f"real_dir={tmp_path}/home/cluster-trainer-runs" in ended.stdout.splitlines(), ended


@pytest.mark.parametrize(("text", "printed"), [("", []), ("Hi\n", ["Hi"]), ("a\nHi", ["Hi"])])
def test_what_the_login_shell_prints_is_told_apart_from_the_answer(
    tmp_path, monkeypatch, text, printed
):
    put(tmp_path, monkeypatch, ssh=f"printf '%s' '{text}'\n{SSH}")
    told = facts.ask(Machine(Host("ana@m0"), 0), IMAGE, "p", "")
    assert told.told.get("printed", []) == printed
    assert told.one("uid") == str(os.getuid())


@pytest.mark.parametrize(
    ("ssh", "reason"),
    [
        ("echo 'ana@m0: Permission denied (publickey).' >&2; exit 255", "(publickey)"),
        ("exec sleep 60", "no answer within 3 s"),
    ],
)
def test_a_machine_where_ssh_cannot_log_in_is_named_with_a_command_to_try(
    tmp_path, monkeypatch, ssh, reason
):
    monkeypatch.setattr(facts, "SECONDS", 3)
    put(tmp_path, monkeypatch, ssh=ssh)
    found = sentence()
    assert found.startswith("SSH cannot log in: ")
    assert reason in found
    assert "Try `ssh ana@m0`" in found


@pytest.mark.parametrize(
    ("program", "asked"),
    [("docker", "Docker"), ("df", "the folder for runs"), ("nvidia_smi", "the GPUs")],
)
def test_a_question_without_an_answer_is_named(tmp_path, monkeypatch, program, asked):
    monkeypatch.setattr(facts, "SECONDS", 3)
    put(tmp_path, monkeypatch, **{program: "exec sleep 60"})
    found = sentence(replace(IMAGE, for_gpus=True))
    assert "SSH" not in found
    assert f"no answer within 3 s to the question about {asked}" in found


def test_a_machine_without_a_tool_of_the_checks_says_so(tmp_path, monkeypatch):
    put(tmp_path, monkeypatch, base64="echo 'sh: base64: not found' >&2; exit 127")
    assert sentence() == "its checks did not end: sh: base64: not found"


def test_gpus_that_no_worker_uses_are_not_asked_for(tmp_path, monkeypatch):
    put(tmp_path, monkeypatch, nvidia_smi="exec sleep 60")
    assert facts.ask(Machine(Host("ana@m0"), 0), IMAGE, "p", "").error == ""

"""Commands on one machine."""

import pytest

from machines.hosts_setting import Host
from machines.machine import Machine, last_line

SCRIPT = """
x=$(echo a b)
[ "$x" = 'a b' ] && echo "it's !
\\ fine"
cat
exit 3
"""


def test_a_script_means_the_same_in_any_login_shell(tmp_path, monkeypatch):
    """csh and fish read variables, newlines, backslashes and ! in their own ways."""
    ssh = tmp_path / "ssh"
    sent = tmp_path / "sent"
    ssh.write_text(f'#!/bin/sh\nfor last; do :; done\nprintf %s "$last" >{sent}\nsh -c "$last"\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    ended = Machine(Host("ana@m1"), 0).ask(SCRIPT)
    assert (ended.returncode, ended.stdout) == (3, "it's !\n\\ fine\n")
    before, quoted, after = sent.read_text().split("'")
    assert (before, after) == ("exec sh -c ", "")
    assert not {*"\n\\!"} & {*quoted}


def test_a_connection_is_neither_others_nor_listens_here(tmp_path, monkeypatch):
    """Many SSH configurations share connections (ControlMaster auto), and forward ports.

    If a shared connection is ended, so are the commands of others over it.
    """
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\necho "$@"\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    given = Machine(Host("ana@m1"), 0).ask("true").stdout
    assert "-o ControlMaster=no" in given
    assert "-o ClearAllForwardings=yes" in given


@pytest.mark.parametrize(
    "after",
    ["", "\nSee 'docker run --help'.\n", "\n\nRun 'docker run --help' for more information\n"],
)
def test_the_reason_is_not_dockers_line_about_its_help(after):
    assert (
        last_line(f"Unable to find image\ndocker: no such device.{after}")
        == "docker: no such device."
    )


@pytest.mark.parametrize("text", ["", "\n", "See 'docker run --help'."])
def test_no_reason_is_said(text):
    assert last_line(text) == "it said nothing"

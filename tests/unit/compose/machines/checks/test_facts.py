"""The facts that a machine reports about itself."""

import os
import subprocess

import pytest

from machines.checks import facts
from machines.hosts_setting import Host
from machines.image import Image
from machines.machine import Machine

IMAGE = Image("i:1", "layers", 10**9, "amd64", for_gpus=False)


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
    ssh = f"#!/bin/sh\nprintf '%s' '{text}'\nfor last; do :; done\nexec sh -c \"$last\"\n"
    for name, program in (("ssh", ssh), ("docker", "#!/bin/sh\nexit 1\n")):
        (tmp_path / name).write_text(program)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    told = facts.ask(Machine(Host("ana@m0"), 0), IMAGE, "p", "")
    assert told.told.get("printed", []) == printed
    assert told.one("uid") == str(os.getuid())

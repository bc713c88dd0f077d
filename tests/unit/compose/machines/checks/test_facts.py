"""The facts that a machine reports about itself."""

import os
import subprocess

from machines.checks import facts
from machines.host import Host
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

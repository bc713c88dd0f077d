"""The script for MLflow in docs/how-to/trackers.md."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs/how-to/trackers.md").read_text()


def test_each_run_has_an_id_of_its_own(tmp_path, monkeypatch):
    """A folder /runs has many runs. The ID of one of them must not lead to another."""
    (lines,) = re.findall(r"( +kept = .*\n(?: +kept\.parent.*\n)?)", PAGE)
    found = []
    for name in ("first", "second"):
        monkeypatch.setenv("TRAINER_RUN_DIR", str(tmp_path / name))
        names = {}
        exec(f"import os\nfrom pathlib import Path\nif True:\n{lines}", names)
        names["kept"].write_text(name)
        found.append(names["kept"])
    assert found == [tmp_path / "first/mlflow-run", tmp_path / "second/mlflow-run"]

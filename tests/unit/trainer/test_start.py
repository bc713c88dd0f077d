"""Importing TensorFlow in a command sets its threads, and pauses the garbage collector."""

import json
import subprocess
import sys

import pytest

PROGRAM = """
import gc, json, sys
import cluster_trainer_start
cluster_trainer_start.begin()
{before}
seen = []
sys.modules["seen"] = seen
{imports}
print(json.dumps([*seen, gc.isenabled(), gc.get_freeze_count() > 0]))
"""
NOTE = "import gc, sys\nsys.modules['seen'].append(gc.isenabled())\n"


@pytest.fixture
def seen(tmp_path, monkeypatch):
    """Return a function that runs imports, and returns the collector's state in and after them."""
    (tmp_path / "other.py").write_text(NOTE)
    (tmp_path / "tensorflow.py").write_text(NOTE)
    (tmp_path / "keras.py").write_text(f"{NOTE}import tensorflow, other\n{NOTE}")
    (tmp_path / "tf_keras.py").write_text("raise ImportError")

    def run(imports, before="", **environ):
        program = PROGRAM.format(before=before, imports=imports)
        monkeypatch.syspath_prepend(tmp_path)
        path = ":".join(sys.path)
        ended = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONPATH": path} | environ,
            cwd=tmp_path,
            capture_output=True,
            check=True,
        )
        return json.loads(ended.stdout)

    return run


def test_nothing_is_collected_while_tensorflow_is_imported(seen):
    assert seen("import tensorflow") == [False, True, True]


def test_another_package_is_imported_as_ever(seen):
    assert seen("import other") == [True, True, False]


def test_an_import_within_another_does_not_end_its_quiet(seen):
    assert seen("import keras") == [False, False, False, False, True, True]


def test_an_import_that_fails_leaves_the_collection_on(seen):
    failing = "try: import tf_keras\nexcept ImportError: pass"
    assert seen(failing)[-2] is True


def test_a_script_that_collects_nothing_goes_on_so(seen):
    assert seen("import tensorflow", before="gc.disable()") == [False, False, False]


def test_what_a_script_has_made_before_is_looked_at_again(seen):
    assert seen("import tensorflow", before="gc.collect()") == [False, True, False]


def test_a_module_and_its_loader_are_as_ever(seen):
    same = "'exec_module' not in vars(tensorflow.__loader__)"
    source = "tensorflow.__loader__.get_source('tensorflow')"
    imports = f"import tensorflow\nseen[:] = [{same}, {source}]"
    assert seen(imports)[:2] == [True, NOTE]


THREADS = "import os, sys\nsys.modules['seen'].append(os.environ.get('TF_NUM_INTRAOP_THREADS'))\n"


@pytest.mark.parametrize(("package", "told"), [("tensorflow", "3"), ("tf_keras", None)])
def test_tensorflow_alone_is_told_of_its_threads_when_it_is_imported(seen, tmp_path, package, told):
    (tmp_path / f"{package}.py").write_text(THREADS)
    assert seen(f"import {package}", TRAINER_THREADS="3")[0] == told


def test_what_a_script_has_set_before_stays(seen, tmp_path):
    (tmp_path / "tensorflow.py").write_text(THREADS)
    before = "import os\nos.environ['TF_NUM_INTRAOP_THREADS'] = '5'"
    assert seen("import tensorflow", before, TRAINER_THREADS="3")[0] == "5"

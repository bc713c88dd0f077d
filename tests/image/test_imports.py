import json
import re

import pytest

FIND = """
import importlib.util, json, sys
print(json.dumps([name for name in sys.argv[1:] if importlib.util.find_spec(name)]))
"""
IMPORT = """
import gc, importlib, json, os
collected = []
gc.callbacks.append(lambda phase, about: collected.append(phase))
import tensorflow
during = len(collected)
gc.callbacks.clear()
garbage = [during, gc.isenabled(), gc.get_freeze_count() > 10_000]
names = ("tensorflow", "keras", "tf_keras", "tensorflow_datasets", "tensorboard")
versions = {name: importlib.import_module(name).__version__ for name in names}
os.write(2, b"E0000 00:00:1.5 7 port.cc:1] refused\\n")
print(json.dumps([versions, garbage]))
"""
OURS = re.compile(r"\d\d:\d\d:\d\d [A-Z]+ \S+ ")
# Our hook is disabled, because it would end at the first missing name.
MISSING = """
import ast, importlib, json, sys, types
from pathlib import Path
sys.modules["cluster_trainer.hook"] = types.SimpleNamespace(install=lambda: None)
import cluster_trainer, keras, tensorflow
place = Path(cluster_trainer.__path__[0]) / "private"
def is_there(where, name):
    try:
        if hasattr(importlib.import_module(where), name):
            return True
        return bool(importlib.import_module(f"{where}.{name}"))
    except ImportError:
        return False
files = [place / f"{name}_names.py" for name in ("keras", "tensorflow")]  # JAX is not in this image
names = [
    (node.module, one.name)
    for file in files
    for node in ast.walk(ast.parse(file.read_text()))
    if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] in ("keras", "tensorflow")
    for one in node.names
]
lacks = [f"{where}: {name}" for where, name in names if not is_there(where, name)]
print(json.dumps([len(files), len(names) > 20, lacks]))
"""
WHICH = """
import json, sys
from cluster_trainer import this_worker
one = this_worker()
has_tensorflow = "tensorflow" in sys.modules
print(json.dumps([one.name, one.num_workers, one.is_chief, has_tensorflow]))
"""
LOAD_OWN_DATA = """
import json, sys, types
from pathlib import Path
import numpy as np
import cluster_trainer.train
from cluster_trainer.data import registry
part = (np.zeros([2, 3]), np.arange(2))
sys.modules["own"] = types.SimpleNamespace(load=lambda: (part, part))
registry.load("own:load", Path("/data"), None)
print(json.dumps([name for name in sys.modules if name == "tensorflow_datasets"]))
"""


def test_frameworks_are_there_and_tensorflow_is_imported_without_collection(run_to_end):
    ended = run_to_end("python", "-c", IMPORT)
    versions, garbage = json.loads(ended.out.splitlines()[-1])
    assert versions["tensorflow"].startswith("2.21.")
    assert versions["tf_keras"].startswith("2.21.")
    assert versions["tensorboard"].startswith("2.21.")
    assert versions["keras"].startswith("3.")
    assert versions["tensorflow_datasets"].startswith("4.")
    assert garbage == [0, True, True]
    printed = [line for line in ended.err.splitlines() if not OURS.match(line)]
    assert printed == ["E0000 00:00:1.5 7 port.cc:1] refused"]


def test_every_private_name_that_is_imported_is_there_and_a_level_of_ones_own_is_heeded(run_to_end):
    ended = run_to_end("python", "-c", MISSING, environment={"TF_CPP_MIN_LOG_LEVEL": "0"})
    assert json.loads(ended.out.splitlines()[-1]) == [2, True, []]
    assert "absl::InitializeLog" in ended.err


def test_the_entrypoints_python_begins_with_nothing_of_the_commands(run_to_end):
    program = "import sys; print('cluster_trainer_start' in sys.modules)"
    command, alone = ("python", "-c", program), ("python", "-I", "-c", program)
    assert run_to_end(*command).out.strip() == "True"
    assert run_to_end(*alone).out.strip() == "False"


@pytest.mark.parametrize("name", ["sklearn", "scipy", "pytest", "sagemaker_training"])
def test_what_only_the_build_needs_is_left_out(run_to_end, name):
    assert run_to_end("python", "-c", FIND, name, "json").out.strip() == '["json"]'


def test_site_packages_are_byte_compiled(run_bash):
    count = "find /opt/venv -path '*tensorflow/python*' -name '*.pyc' | wc -l"
    assert int(run_bash(count)) > 1000


def test_no_package_is_compiled_while_it_is_imported(run_to_end):
    ended = run_to_end("python", "-v", "-c", "import cluster_trainer.train")
    loaded = re.findall("code object from '?(/opt/venv/[^'\n]*)", ended.err)
    assert len(loaded) > 1000
    assert not [file for file in loaded if not file.endswith(".pyc")]


def test_a_script_learns_which_worker_it_is_before_it_imports_tensorflow(run_python):
    assert run_python(WHICH) == ["worker-0", 1, True, False]


def test_own_data_do_not_wait_for_tensorflow_datasets(run_python):
    assert run_python(LOAD_OWN_DATA) == []

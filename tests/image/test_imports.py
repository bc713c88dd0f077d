import pytest

IMPORT = """
import importlib, json
names = ("tensorflow", "keras", "tf_keras", "tensorflow_datasets", "tensorboard")
modules = {name: importlib.import_module(name) for name in names}
print(json.dumps({name: modules[name].__version__ for name in names}))
"""
FIND = """
import importlib.util, json, sys
print(json.dumps([name for name in sys.argv[1:] if importlib.util.find_spec(name)]))
"""


def test_frameworks_are_there_in_the_versions_that_fit(run_python):
    versions = run_python(IMPORT)
    assert versions["tensorflow"].startswith("2.21.")
    assert versions["tf_keras"].startswith("2.21.")
    assert versions["tensorboard"].startswith("2.21.")
    assert versions["keras"].startswith("3.")
    assert versions["tensorflow_datasets"].startswith("4.")


@pytest.mark.parametrize("name", ["sklearn", "scipy", "pytest", "sagemaker_training"])
def test_what_only_the_build_needs_is_left_out(run_to_end, name):
    assert run_to_end("python", "-c", FIND, name, "json").out.strip() == '["json"]'


def test_site_packages_are_byte_compiled(run_bash):
    count = "find /opt/venv -path '*tensorflow/python*' -name '*.pyc' | wc -l"
    assert int(run_bash(count)) > 1000

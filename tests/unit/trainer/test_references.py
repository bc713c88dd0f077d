import importlib
import sys

import pytest

from cluster_trainer.problems import ConfigurationError
from cluster_trainer.settings.names import data_sets as names
from cluster_trainer.settings.names import references
from cluster_trainer.settings.reading import did_you_mean


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pkg.mod:build", True),
        ("mod:f", True),
        ("mnist", False),
        ("a/b:1.0.0", False),
        ("mnist:3.0.1", False),
        (":f", False),
        ("mod:", False),
        ("a:b:c", False),
    ],
)
def test_tells_references_from_names(text, expected):
    assert references.is_reference(text) is expected


def test_a_module_is_looked_for_without_importing_it(tmp_path, monkeypatch):
    (tmp_path / "own_slow_module.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert references.module_exists("own_slow_module:build")
    assert not references.module_exists("own_absent_module:build")


def test_resolves_a_function():
    assert references.resolve("X", "os.path:join")("a", "b") == "a/b"


@pytest.fixture
def as_it_was(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    before = {name: sys.modules.pop(name) for name in [*sys.modules] if is_of_trainer(name)}
    yield
    for name in [name for name in sys.modules if is_of_trainer(name)]:
        del sys.modules[name]
    sys.modules.update(before)


def is_of_trainer(name):
    return name.partition(".")[0] == "trainer"


@pytest.mark.usefixtures("as_it_was")
@pytest.mark.parametrize(
    "files", [["trainer/__init__.py", "trainer/data/own.py"], ["trainer/data/own.py"]]
)
def test_a_users_package_called_trainer_is_theirs(files, tmp_path):
    (tmp_path / "trainer/data").mkdir(parents=True)
    for file in files:
        (tmp_path / file).write_text("def load():\n    return 'theirs'\n")
    importlib.import_module("trainer")  # ours, which `python -m trainer` has imported
    references.look_in(tmp_path)
    assert references.module_exists("trainer.data.own:load")
    assert references.resolve("X", "trainer.data.own:load")() == "theirs"


@pytest.mark.usefixtures("as_it_was")
def test_a_users_folder_called_trainer_without_python_in_it_is_no_package(tmp_path):
    (tmp_path / "trainer").mkdir()
    references.look_in(tmp_path)
    assert importlib.import_module("trainer").__getattr__


@pytest.mark.parametrize("text", ["os.path:absent", "absent_module:f", "os:sep"])
def test_what_is_no_function_is_a_problem(text):
    with pytest.raises(ConfigurationError, match=f"X: received .*{text}"):
        references.resolve("X", text)


@pytest.mark.parametrize("name", ["mnist", "mnist:3.0.1", "mnist/plain:3.0.1"])
def test_a_set_is_known_once_it_is_prepared(tmp_path, name):
    assert not names.is_known(name, tmp_path)
    (tmp_path / "mnist/3.0.1").mkdir(parents=True)
    (tmp_path / "mnist/3.0.1/dataset_info.json").touch()
    assert names.is_known(name, tmp_path)


def test_the_images_list_of_names_counts(tmp_path, monkeypatch):
    listed = tmp_path / "names.txt"
    listed.write_text("cifar10\nmnist\n")
    monkeypatch.setattr(names, "TFDS_NAMES", listed)
    assert names.is_known("mnist", tmp_path)
    assert did_you_mean("cifar1", names.tfds_names()) == "Did you mean cifar10?"

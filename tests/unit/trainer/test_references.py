import pytest

from cluster_trainer.problems import ConfigurationError
from cluster_trainer.settings.names import data_sets as names
from cluster_trainer.settings.names import references


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
    assert names.advice("cifar1") == "Did you mean cifar10?"

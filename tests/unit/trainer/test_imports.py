"""TensorFlow's import: nothing is collected meanwhile, and everything as usual afterwards."""

import gc

import pytest

from cluster_trainer.process.imports import without_collection


@pytest.fixture(autouse=True)
def as_it_was():
    yield
    gc.unfreeze()
    gc.enable()


def test_nothing_is_collected_meanwhile():
    with without_collection():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_what_was_imported_is_not_looked_at_again():
    with without_collection():
        imported = [[]]
    assert gc.get_freeze_count() > 0
    assert not any(found is imported for found in gc.get_objects())


def test_an_import_that_fails_changes_nothing():
    with pytest.raises(ImportError), without_collection():
        raise ImportError
    assert gc.isenabled()

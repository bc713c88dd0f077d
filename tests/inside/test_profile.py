"""A profile of steps, even if a worker is lost before its end."""

from cluster_trainer.callbacks.profile import Profile
from cluster_trainer.checkpoints.checkpoint import Place


def test_a_fit_that_was_broken_off_keeps_the_next_from_no_profile(tmp_path):
    """Both fits run in one process, as on a survivor of a lost worker."""
    broken_off, again = (Profile(tmp_path / name, 1, 9, Place) for name in ("one", "two"))
    broken_off.on_train_begin()
    broken_off.on_train_batch_begin(0)
    again.on_train_begin()
    again.on_train_batch_begin(0)
    again.on_train_end()
    assert (tmp_path / "one/plugins/profile").is_dir()
    assert (tmp_path / "two/plugins/profile").is_dir()

"""What a run goes on with."""

from local_cluster.commands.resume import keep_global_batch

WAS = {"WORKERS": "2", "TRAINER_PER_REPLICA_BATCH_SIZE": "32", "TRAINER_SEED": "7"}


def with_checkpoint(folder):
    (folder / "worker-1/checkpoints").mkdir(parents=True)
    content = b'{"TRAINER_GLOBAL_BATCH_SIZE": "64"}'
    (folder / "worker-1/checkpoints/00000010-a.npz").write_bytes(content)
    return folder


def test_the_global_batch_stays_that_of_the_checkpoint(tmp_path):
    kept = keep_global_batch(with_checkpoint(tmp_path), WAS, {})
    assert kept["TRAINER_GLOBAL_BATCH_SIZE"] == "64"
    assert not kept["TRAINER_PER_REPLICA_BATCH_SIZE"]
    assert (kept["WORKERS"], kept["TRAINER_SEED"]) == ("2", "7")


def test_a_batch_that_is_given_now_wins(tmp_path):
    given = {"TRAINER_GLOBAL_BATCH_SIZE": "8"}
    kept = keep_global_batch(with_checkpoint(tmp_path), WAS, given)
    assert kept == {"WORKERS": "2", "TRAINER_SEED": "7"}


def test_without_a_checkpoint_all_is_as_it_was(tmp_path):
    assert keep_global_batch(tmp_path, WAS, {}) == WAS

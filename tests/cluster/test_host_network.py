import pytest


@pytest.mark.long  # the test below covers the same with two workers
def test_one_worker_trains_before_there_are_two(run):
    one = {"NETWORK": "host", "WORKERS": 1, "TRAINER_EPOCHS": 1, "TRAINER_STEPS_PER_EPOCH": 3}
    ended = run(**one).raise_unless_done()
    assert [result["status"] for result in ended.results()] == ["done"]
    assert "worker-0 of 1 (the chief), TF_CONFIG from WORKER_HOSTS" in ended.output


def test_two_workers_train_on_the_hosts_own_network(run):
    ended = run(NETWORK="host", TRAINER_EPOCHS=1, TRAINER_STEPS_PER_EPOCH=3).raise_unless_done()
    digests = {result["weights_sha256"] for result in ended.results()}
    assert (len(ended.results()), len(digests)) == (2, 1)
    assert "localhost:20000" in ended.output

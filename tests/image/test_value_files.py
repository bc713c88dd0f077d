def test_a_value_may_come_from_a_mounted_file(run_to_end, tmp_path):
    (tmp_path / "hosts").write_text("h0:1\nh1:2\n")
    ended = run_to_end(
        "bash",
        "-c",
        'echo "$WORKER_HOSTS_FILE|$TF_CONFIG"',
        environment={
            "WORKER_HOSTS_FILE": "/run/secrets/hosts",
            "WORKER_INDEX": "0",
            "RENDEZVOUS_TIMEOUT": "0",
        },
        volumes=[f"{tmp_path}/hosts:/run/secrets/hosts:ro"],
    )
    assert ended.code == 0, ended.err
    assert '"h1:2"' in ended.out
    assert "/run/secrets" not in ended.out


def test_a_setting_of_the_trainer_may_come_from_a_file(run_to_end, tmp_path):
    (tmp_path / "model").write_text("no-such-model\n")
    ended = run_to_end(
        environment={"TRAINER_MODEL_FILE": "/model"}, volumes=[f"{tmp_path}/model:/model:ro"]
    )
    assert ended.code == 78
    assert 'TRAINER_MODEL (--model): received "no-such-model"' in ended.err

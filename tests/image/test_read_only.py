TRAIN = {"TRAINER_EPOCHS": "1", "TRAINER_STEPS_PER_EPOCH": "2"}


def test_trains_on_a_read_only_root_with_no_capabilities(run_to_end, tmp_path):
    ended = run_to_end(
        environment=TRAIN,
        read_only=True,
        tmpfs={"/tmp": "size=256m,mode=1777"},
        cap_drop=["ALL"],
        security_opt=["no-new-privileges:true"],
        network_mode="none",
        volumes=[f"{tmp_path}:/runs"],
    )
    assert ended.code == 0, ended.err
    assert (tmp_path / "worker-0/result.json").exists()

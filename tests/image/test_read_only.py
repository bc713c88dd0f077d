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


def test_progress_can_be_told_on_a_read_only_root(run_to_end):
    # Three crashes, each after some progress, are more than one restart without any.
    script = 'echo $RESTART_COUNT >> "$PROGRESS_FILE" && [ "$RESTART_COUNT" = 3 ]'
    ended = run_to_end("sh", "-c", script, read_only=True, environment={"MAX_RESTARTS": "1"})
    assert ended.code == 0, ended.err


def test_a_working_directory_that_may_not_be_searched_is_told(run_to_end):
    ended = run_to_end("echo", "ran", working_dir="/root", user="1000:1000")
    assert (ended.code, ended.out) == (0, "ran\n"), ended
    assert "WARNING worker-0 /root cannot be searched" in ended.err

def test_any_command_runs_with_its_arguments(run_to_end):
    assert run_to_end("bash", "-c", 'echo "$0 $1"', "a b", "c").out == "a b c\n"


def test_a_first_argument_with_a_dash_is_a_flag_of_the_trainer(run_to_end):
    ended = run_to_end("--model", "no-such-model")
    assert ended.code == 78
    assert "TRAINER_MODEL (--model)" in ended.err


def test_help_names_every_flag_in_lines_a_terminal_can_show(run_to_end):
    ended = run_to_end("python", "-m", "trainer", "--help")
    assert ended.code == 0, ended.err
    for flag in ("--model", "--dataset", "--epochs", "--global-batch-size", "--run-dir"):
        assert flag in ended.out
    assert max(map(len, ended.out.splitlines())) <= 120


def test_help_is_the_same_by_the_entrypoint(run_to_end):
    assert run_to_end("--help").out == run_to_end("python", "-m", "trainer", "--help").out


def test_a_folder_called_trainer_does_not_shadow_the_trainer(run_to_end, tmp_path):
    for name in ("trainer", "entrypoint"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit(99)")
    ended = run_to_end("--help", volumes=[f"{tmp_path}:/workspace:ro"])
    assert ended.code == 0, ended.err


def test_a_command_runs_in_a_folder_that_may_not_be_searched(run_to_end, tmp_path):
    tmp_path.chmod(0o700)
    program = f"print('ran') # {'a long program ' * 40}"
    ended = run_to_end("python", "-c", program, volumes=[f"{tmp_path}:/workspace:ro"])
    assert (ended.code, ended.out) == (0, "ran\n")

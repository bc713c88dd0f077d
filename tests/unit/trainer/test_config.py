import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_trainer import problems
from cluster_trainer.problems import ConfigurationError
from cluster_trainer.settings.clusters import refuse_strategy_for_one
from cluster_trainer.settings.config import TrainerConfig, setting_names
from cluster_trainer.settings.names.spellings import variable_of
from entrypoint import errors

BAD_VALUES = [
    ("TRAINER_MODEL", "mnist_cn", "mnist_cnn"),
    ("TRAINER_MODEL", "no_such_package_here:build", "module:function"),
    ("TRAINER_MODEL", "os:", "module:function"),
    ("TRAINER_DATASET", "digitz", "Did you mean digits"),
    ("TRAINER_DATASET", "no_such_package_here:load", "module:function"),
    ("TRAINER_STRATEGY", "mirror", "auto, none, mirrored or multiworker"),
    ("TRAINER_WIRE", "float16", "float32 or bfloat16"),
    ("TRAINER_SYNC_EVERY", "0", "1 or more"),
    ("TRAINER_AUGMENT", "rotate", "none, flip, crop or flip_crop"),
    ("TRAINER_OPTIMIZER", "rmspropp", "Did you mean rmsprop?"),
    ("TRAINER_LOSS", "mean-square", "a loss of keras.losses by its name"),
    ("TRAINER_METRICS", "accuracy,a b", "metrics of keras.metrics by their names"),
    ("TRAINER_EPOCHS", "0", "1 or more"),
    ("TRAINER_EPOCHS", "many", "1 or more"),
    ("TRAINER_EPOCHS", "1.5", "1 or more"),
    ("TRAINER_STEPS_PER_EPOCH", "-1", "1 or more"),
    ("TRAINER_GLOBAL_BATCH_SIZE", "0", "1 or more"),
    ("TRAINER_LEARNING_RATE", "0", "above 0"),
    ("TRAINER_LEARNING_RATE", "nan", "above 0"),
    ("TRAINER_LR_SCALING", "log", "none, linear or sqrt"),
    ("TRAINER_WARMUP_STEPS", "-1", "auto or a whole number, 0 or more"),
    ("TRAINER_SEED", "-1", "0 to 2147483647"),
    ("TRAINER_JIT", "maybe", "true or false"),
    ("TRAINER_SILENCE_SECONDS", "0", "1 to 86400"),
    ("TRAINER_SILENCE_SECONDS", "86401", "1 to 86400"),
    ("TRAINER_THREADS", "all", "auto"),
    ("TRAINER_STEPS_PER_CALL", "0", "auto"),
    ("TRAINER_TENSORBOARD", "true", "none, scalars or histograms"),
    ("TRAINER_PROFILE_STEPS", "100", "as 100-110"),
    ("TRAINER_PROFILE_STEPS", "0-5", "as 100-110"),
    ("TRAINER_PROFILE_STEPS", "9-5", "as 100-110"),
    ("TRAINER_RUN_DIR", "/dev/null/runs", "not a directory"),
    ("TRAINER_MODEL_DIR", "/dev/null/model", "not a directory"),
]


@pytest.fixture
def base(tmp_path):
    """The one setting that a machine without /runs needs."""
    return {"TRAINER_RUN_DIR": str(tmp_path)}


def refusal(environ, arguments=()):
    with pytest.raises(ConfigurationError) as caught:
        TrainerConfig.read(environ, arguments)
    return str(caught.value)


@pytest.mark.parametrize(("name", "value", "said"), BAD_VALUES)
def test_refuses_and_says_what_is_accepted(base, name, value, said):
    message = refusal(base | {name: value})
    assert "1 problem in the configuration" in message
    assert name in message
    assert f'received "{value}"' in message
    assert said in message


def test_tensorflows_collectives_send_numbers_as_they_are(base):
    message = refusal(base | {"TRAINER_COLLECTIVES": "tensorflow", "TRAINER_WIRE": "bfloat16"})
    assert "float32, since TRAINER_COLLECTIVES is tensorflow" in message


def test_an_unknown_variable_is_named_and_its_value_kept_to_itself(base):
    message = refusal(base | {"TRAINER_EPOCH": "hunter2"})
    assert "TRAINER_EPOCH: " in message
    assert "TRAINER_EPOCHS?" in message
    assert "hunter2" not in message


def test_all_problems_come_together(base):
    message = refusal(
        base | {"TRAINER_MODEL": "x", "TRAINER_EPOCHS": "no", "TRAINER_TYPO": "1"},
        ["--strategy", "y", "--bath", "--seed=z"],
    )
    assert "6 problems" in message
    for name in ("MODEL", "EPOCHS", "TYPO", "STRATEGY", "SEED"):
        assert f"TRAINER_{name}" in message
    assert "--bath" in message


def test_both_batch_sizes_are_one_too_many(base):
    sizes = {"TRAINER_PER_REPLICA_BATCH_SIZE": "3", "TRAINER_GLOBAL_BATCH_SIZE": "12"}
    message = refusal(base | sizes)
    assert "one of the two batch sizes" in message
    assert "TRAINER_PER_REPLICA_BATCH_SIZE is 3" in message


def test_without_flags_no_parser_is_made_of_them(base, monkeypatch):
    monkeypatch.setattr("cluster_trainer.settings.config.Flags", None)
    assert TrainerConfig.read({**base, "TRAINER_EPOCHS": "3"}, []).epochs == 3


def test_a_flag_wins_over_its_variable(base):
    assert TrainerConfig.read(base | {"TRAINER_EPOCHS": "3"}, ["--epochs", "5"]).epochs == 5


@pytest.mark.parametrize(
    "arguments",
    [
        ["--learning_rate", "0.5"],  # as Vertex AI's tuning passes it
        ["--learning_rate=0.5"],
        ["--learning-rate=0.5"],
    ],
)
def test_a_flag_may_have_underscores(base, arguments):
    assert TrainerConfig.read(base, arguments).learning_rate == 0.5


def test_a_flag_that_is_unknown_is_shown_as_it_was_given_without_its_value(base):
    assert 'received "--lerning_rate";' in refusal(base, ["--lerning_rate=0_1"])


@pytest.mark.parametrize(
    ("environ", "arguments", "name"),
    [
        ({"TRAINER_API_KEY": "hunter2"}, [], "TRAINER_API_KEY"),
        ({"TRAINER_DB_PASSWD": "hunter2"}, [], "TRAINER_DB_PASSWD"),
        ({}, ["--api-key=hunter2"], "--api-key"),
        ({}, ["--login", "hunter2"], "--login"),
        ({}, ["--login", "hunter2", "--epochs"], "--epochs"),
    ],
)
def test_a_secret_is_not_repeated(base, environ, arguments, name):
    message = str(refusal(base | environ, arguments))
    assert (name in message, "hunter2" in message) == (True, False)
    assert "1 problem in" in message


@pytest.mark.parametrize(
    ("name", "is_hidden"), [("monkeys", False), ("my_tokenizer", False), ("api_key", True)]
)
def test_a_name_that_only_looks_like_a_secrets_hides_nothing(name, is_hidden):
    said = str(problems.Problem(name, "banana", "an apple"))
    assert ("***" in said, "banana" in said) == (is_hidden, not is_hidden)


def test_what_is_secret_is_the_same_for_both_packages():
    assert problems.SECRET_WORDS == errors.SECRET_WORDS
    assert problems.NO_SECRET == errors.NO_SECRET


def test_underscores_in_a_value_stay(base):
    found = TrainerConfig.read(base, [f"--model_dir={base['TRAINER_RUN_DIR']}/a_b"])
    assert found.model_dir.name == "a_b"


def test_the_model_goes_to_the_runs_folder_unless_another_is_named(base, tmp_path):
    assert TrainerConfig.read(base, []).model_dir is None
    named = base | {"TRAINER_MODEL_DIR": str(tmp_path / "model")}
    assert TrainerConfig.read(named, []).model_dir == tmp_path / "model"


def test_an_empty_variable_counts_as_unset(base):
    assert TrainerConfig.read(base | {"TRAINER_EPOCHS": " "}, []).epochs == 50


def test_nothing_is_read_but_what_is_handed_in(base, monkeypatch):
    monkeypatch.setenv("TRAINER_EPOCHS", "7")
    assert TrainerConfig.read(base, []).epochs == 50
    assert TrainerConfig(run_dir=base["TRAINER_RUN_DIR"]).epochs == 50


def test_every_setting_has_a_description_and_a_variable():
    assert variable_of("run_dir") == "TRAINER_RUN_DIR"
    for name in setting_names():
        assert TrainerConfig.model_fields[name].description


def test_help_names_every_flag(base, capsys):
    with pytest.raises(SystemExit) as ended:
        TrainerConfig.read(base, ["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert all(f"--{name.replace('_', '-')}" in shown for name in setting_names())


def test_a_directory_that_cannot_be_written_is_refused(base, tmp_path, monkeypatch):
    monkeypatch.setattr("cluster_trainer.settings.validators.os.access", lambda *_: False)
    message = refusal(base)
    assert str(tmp_path) in message
    assert "cannot be written" in message
    assert "--user" in message


def test_in_a_pod_a_directory_that_cannot_be_written_asks_for_the_pods_own_group(base, monkeypatch):
    monkeypatch.setattr("cluster_trainer.settings.validators.os.access", lambda *_: False)
    monkeypatch.setattr("cluster_trainer.settings.validators.is_in_pod", lambda: True)
    message = refusal(base)
    assert f"set fsGroup: {os.getgid()} in the pod's securityContext" in message
    assert "--user" not in message


@pytest.mark.parametrize(("size", "replicas", "each"), [(128, 1, 128), (128, 4, 32)])
def test_a_global_batch_is_shared_out(base, size, replicas, each):
    config = TrainerConfig.read(base, [f"--global-batch-size={size}"])
    assert config.batch_size_per_replica(replicas) == each


def test_a_global_batch_that_cannot_be_shared_out_is_refused(base):
    config = TrainerConfig.read(base, ["--global-batch-size=100"])
    with pytest.raises(ConfigurationError, match=r"multiple of 3"):
        config.batch_size_per_replica(3)


@pytest.mark.parametrize("strategy", ["none", "mirrored"])
def test_a_strategy_for_one_is_refused_in_a_cluster(base, strategy):
    config = TrainerConfig.read(base, ["--strategy", strategy])
    refuse_strategy_for_one(config, num_workers=1)
    with pytest.raises(ConfigurationError, match="each would train by itself"):
        refuse_strategy_for_one(config, num_workers=2)


@pytest.mark.parametrize(
    ("settings", "is_fixed"),
    [
        ({}, True),  # the cosine is as long as the run
        ({"learning_rate_schedule": "constant"}, False),
        ({"learning_rate_schedule": "constant", "lr_scaling": "linear"}, True),  # so is its warm-up
        (
            {"learning_rate_schedule": "constant", "lr_scaling": "linear", "warmup_steps": 5},
            False,
        ),
    ],
)
def test_a_run_keeps_its_epochs_where_the_learning_rate_needs_them(tmp_path, settings, is_fixed):
    kept = TrainerConfig(run_dir=tmp_path, **settings).run_settings()
    assert ("TRAINER_EPOCHS" in kept) is is_fixed


NAMES = st.sampled_from([variable_of(name) for name in setting_names()] + ["TRAINER_X", "PATH"])
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=30)
NUMBERS = st.one_of(st.integers(), st.floats()).map(str)


@given(st.dictionaries(NAMES, TEXTS | NUMBERS), st.lists(TEXTS | NAMES, max_size=3))
def test_any_environment_is_read_or_refused(environ, arguments):
    if any(argument.startswith("-h") or "--help".startswith(argument) for argument in arguments):
        return
    try:
        config = TrainerConfig.read(environ, arguments)
    except ConfigurationError as error:
        assert str(error).startswith("cluster-trainer: ")  # noqa: PT017  refusing is allowed
    else:
        again = TrainerConfig(**config.model_dump())
        assert again == config


@pytest.mark.parametrize("collectives", ["ring", "auto"])
def test_all_workers_of_a_ring_send_the_same(base, collectives):
    flags = [f"--collectives={collectives}", "--wire"]
    sent = {
        TrainerConfig.read(base, [*flags, wire]).shared_settings()["TRAINER_WIRE"]
        for wire in ("float32", "bfloat16")
    }
    assert sent == {"float32", "bfloat16"}


def test_jit_is_the_same_on_all_workers_and_may_change_at_the_next_start(base):
    plain, jit = (TrainerConfig.read(base, flags) for flags in ([], ["--jit=true"]))
    assert [one.shared_settings()["TRAINER_JIT"] for one in (plain, jit)] == ["False", "True"]
    assert plain.run_settings() == jit.run_settings()


@pytest.mark.parametrize(
    "also",
    [
        {"TRAINER_COLLECTIVES": "tensorflow"},
        {"TRAINER_PRECISION": "float16"},
        {"TRAINER_SYNC_BATCH_NORM": "true"},
    ],
)
def test_steps_by_itself_go_with_nothing_that_is_summed_in_each_step(base, also):
    (name,) = also
    given = base | also | {"TRAINER_SYNC_EVERY": "16"}
    message = refusal(given)
    assert name in message
    assert "TRAINER_SYNC_EVERY" in message
    TrainerConfig.read(given | {"TRAINER_SYNC_EVERY": "1"}, ())
    assert name in refusal(given | {"TRAINER_SYNC_EVERY": "auto"})

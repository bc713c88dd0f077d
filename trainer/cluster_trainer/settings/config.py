"""Defines every setting of a run, each of which is a flag and a TRAINER_ variable.

`TrainerConfig` lists what can be set. Nothing here imports TensorFlow, which takes seconds: a bad
setting is refused before that.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, ValidationInfo, field_validator
from pydantic_settings import (
    BaseSettings,
    CliUnknownArgs,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.settings import validators
from cluster_trainer.settings.groups import OF_THE_RUN, OWN_TO_EACH_WORKER
from cluster_trainer.settings.names import data_sets, devices
from cluster_trainer.settings.names.spellings import PREFIX, flag_of, shown_name, variable_of
from cluster_trainer.settings.reading import Flags, Variables, did_you_mean, without_values
from cluster_trainer.settings.refusals import (
    HELP_LISTS,
    MOST_SILENCE_SECONDS,
    problems_of,
    unknown_flags,
    unknown_settings,
    unknown_variables,
)

DEFAULT_PER_REPLICA_BATCH_SIZE = 32

PositiveInt = Annotated[int, Field(ge=1)]
NonNegativeInt = Annotated[int, Field(ge=0)]
AutoOrPositive = Literal["auto"] | PositiveInt
AutoOrNonNegative = Literal["auto"] | NonNegativeInt


class TrainerConfig(BaseSettings):
    """Train a Keras model on one device, on several GPUs, or on a cluster of workers.

    Each flag is also a variable: --run-dir is TRAINER_RUN_DIR. A flag wins over its variable.
    """

    model_config = SettingsConfigDict(
        frozen=True,
        env_prefix=PREFIX,
        cli_kebab_case=True,
        cli_hide_none_type=True,
        cli_avoid_json=True,
        cli_ignore_unknown_args=True,
        cli_shortcuts=None,
    )

    model: Annotated[str, AfterValidator(validators.known_model)] = Field(
        "mnist_cnn",
        description="The model: mnist_cnn, mobilenet_v2, resnet50, or module:function of your own "
        "in /workspace. mobilenet_v2 and resnet50 need pictures of 32x32 or more "
        "(TRAINER_IMAGE_SIZE).",
    )
    data_dir: Path = Field(
        Path("/data"), description="Where TensorFlow Datasets keeps prepared data sets."
    )
    dataset: str = Field(
        "digits",
        description="The data set: digits (in the image), a TensorFlow Datasets name such as "
        "mnist, or module:function of your own in /workspace.",
    )
    image_size: PositiveInt | None = Field(
        None,
        description="Pictures are resized to this width and height, in pixels. If unset: 224 "
        "for data sets whose pictures differ in size, otherwise the pictures' own size.",
    )
    augment: Literal["none", "flip", "crop", "flip_crop"] = Field(
        "none",
        description="Random changes of the training pictures. flip mirrors half of the pictures "
        "left to right. crop cuts out a window whose height and width are 75 % to 100 % of the "
        "picture's.",
    )
    cache: Literal["auto", "memory", "disk", "none"] = Field(
        "auto",
        description="Where the decoded pictures of a TensorFlow Datasets set are cached: in "
        "memory, on disk in TRAINER_DATA_DIR, or nowhere (none). auto takes the first cache with "
        "enough room. The results of a run do not depend on it.",
    )
    run_dir: Annotated[Path, AfterValidator(validators.writable_directory)] = Field(
        Path("/runs"), description="Where each worker writes its results: worker-0, worker-1 …"
    )
    model_dir: Annotated[Path, AfterValidator(validators.writable_directory)] | None = Field(
        None,
        description="Where the chief saves the trained model. "
        "If unset: its own folder in TRAINER_RUN_DIR.",
    )
    strategy: Literal["auto", "none", "mirrored", "multiworker"] = Field(
        "auto",
        description="How training is distributed: over the workers of TF_CONFIG (multiworker), "
        "over this machine's GPUs (mirrored), or not at all (none). auto chooses.",
    )
    logical_cpus: PositiveInt | None = Field(
        None,
        description="Splits the CPU into this many devices, each with a replica as on a GPU.",
    )
    devices: Annotated[str, AfterValidator(validators.device_names)] | None = Field(
        None,
        description="Which of this worker's devices train. Each is a replica. If unset: all GPUs, "
        "or the CPU on a machine without one.",
    )
    collectives: Literal["auto", "tensorflow", "ring"] = Field(
        "auto",
        description="How gradients are summed over workers: by TensorFlow's collectives "
        "(tensorflow), or over a ring of direct connections (ring). auto takes the ring if "
        "TRAINER_STRATEGY is auto and each worker trains on its CPU as one device. Scripts "
        "without a strategy take it on any devices.",
    )
    wire: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="The number format in which float32 gradients are sent over the ring. "
        "bfloat16 halves the traffic, for slow networks: it rounds each gradient to 8 "
        "significant bits, and with TRAINER_SYNC_EVERY above 1 each weight's change since the last "
        "average. Sums stay float32.",
    )
    sync_every: AutoOrPositive = Field(
        1,
        description="After how many steps the workers of a ring average their weights. 1: they sum "
        "gradients in each step, and N workers train as one. 16: each worker takes 16 steps by "
        "itself, for slow networks. The result is then not exact: it depends on the number of "
        "workers. auto: the smallest power of two, up to 64, at which sums take less than a tenth "
        "of the time, measured in the first seconds of the first fit.",
    )
    silence_seconds: PositiveInt = Field(
        10,
        le=MOST_SILENCE_SECONDS,
        description="Seconds of silence after which a worker of the ring counts as lost. Holding "
        "the GIL that long, for example while reading a large JSON file, looks like a crash.",
    )
    epochs: PositiveInt = Field(50, description="Epochs to train.")
    steps_per_epoch: PositiveInt | None = Field(
        None,
        description="Global batches per epoch. If unset: one pass over the training data.",
    )
    per_replica_batch_size: PositiveInt | None = Field(
        None, description="Examples per step on each replica. If unset: 32."
    )
    global_batch_size: PositiveInt | None = Field(
        None,
        description="Examples per step on all replicas together, instead of a size for each "
        "replica.",
    )
    optimizer: Annotated[str, AfterValidator(validators.known_optimizer)] = Field(
        "adam",
        description="The optimizer's name in Keras; momentum is SGD with momentum 0.9. Or "
        "module:function of your own, which takes the learning rate (a number or a schedule) "
        "and returns an optimizer.",
    )
    loss: Annotated[str, AfterValidator(validators.known_loss)] | None = Field(
        None,
        description="The loss, if your model is not compiled. If unset: for a classifier, the "
        "cross-entropy of its logits.",
    )
    metrics: Annotated[str, AfterValidator(validators.known_metrics)] | None = Field(
        None,
        description="The metrics, if your model is not compiled. If unset: for a classifier, "
        "the accuracy.",
    )
    learning_rate: float = Field(
        0.001, gt=0, le=1000, allow_inf_nan=False, description="The optimizer's learning rate."
    )
    learning_rate_schedule: Literal["constant", "cosine"] = Field(
        "cosine",
        description="cosine lowers the learning rate to 0 over the whole run. constant does not "
        "change it.",
    )
    lr_scaling: Literal["none", "linear", "sqrt"] = Field(
        "none",
        description="Multiplies the learning rate by global batch / TRAINER_LR_SCALING_BASE "
        "(linear, for SGD) or by the square root of this ratio (sqrt, for Adam).",
    )
    lr_scaling_base: PositiveInt = Field(
        DEFAULT_PER_REPLICA_BATCH_SIZE,
        description="The global batch that TRAINER_LEARNING_RATE is meant for.",
    )
    warmup_steps: AutoOrNonNegative = Field(
        "auto",
        description="Number of steps during which the learning rate rises to its full value. It "
        "starts at the unscaled rate if TRAINER_LR_SCALING raises the rate, otherwise at 0. "
        "auto: 5 epochs, but at most a tenth of the run, if the rate is raised; otherwise 0.",
    )
    precision: Literal["float32", "bfloat16", "float16"] = Field(
        "float32",
        description="The number format in which layers compute. Weights stay float32. bfloat16 "
        "and float16 need GPUs that support them. float16 scales the loss. If a step overflows "
        "on one replica, all replicas skip it.",
    )
    sync_batch_norm: bool = Field(
        False,  # noqa: FBT003  pydantic's signature
        description="BatchNorm uses the mean and variance of the whole global batch, so that any "
        "number of replicas trains to the same weights.",
    )
    first_batch: Literal["check", "refuse", "off"] = Field(
        "check",
        description="Whether to compare the first batch of training and of evaluation with one "
        "device. If the model has parts that Keras does not provide, or that compute over a "
        "batch, all replicas compute this batch, and the chief computes it alone. check warns "
        "about a difference. refuse ends the fit or the evaluation. off compares nothing. An "
        "epoch's last batch is compared, too, once.",
    )
    jit: bool = Field(
        False,  # noqa: FBT003  pydantic's signature
        description="Compiles the parts of a step between two all-reduces with XLA, once for "
        "each batch size. Some models become faster, others slower, and rounding differs. A "
        "model that is already compiled keeps its own jit_compile.",
    )
    seed: int = Field(
        42,
        ge=0,
        lt=2**31,
        description="Seed of the initial weights and of the epoch order.",
    )
    checkpoint_steps: NonNegativeInt = Field(
        200,
        description="Number of steps between two checkpoints. Every worker keeps its own. An "
        "epoch ends with one, too, if that costs less than a tenth of the time. 0 keeps none.",
    )
    resume: Literal["never", "auto", "must"] = Field(
        "auto",
        description="auto resumes from the newest checkpoint of any worker. must refuses to "
        "start without a checkpoint. never moves earlier results aside and starts over, but a "
        "restart after a crash still resumes.",
    )
    keep_earlier: NonNegativeInt | None = Field(
        None,
        description="How many earlier runs each worker keeps in its folder `earlier`. A new run "
        "moves the previous run's files there. If unset: all earlier runs.",
    )
    tensorboard: Literal["none", "scalars", "histograms"] = Field(
        "scalars",
        description="What each worker writes for TensorBoard: curves and text (scalars), also "
        "the weights after each epoch (histograms), or nothing (none).",
    )
    profile_steps: Annotated[str, AfterValidator(validators.first_and_last_step)] | None = Field(
        None,
        description="Steps that the chief profiles. The profile is written to "
        "tensorboard/plugins/profile. In a script, they are steps of the first fit. If unset: "
        "none.",
    )
    steps_per_call: AutoOrPositive = Field(
        "auto",
        description="Number of steps that one call into TensorFlow runs before control returns "
        "to Python. auto: as many as take about a second, or 0.2 s while workers are missing.",
    )
    threads: AutoOrPositive = Field(
        "auto",
        description="Number of CPU threads that TensorFlow uses. A script may set another "
        "number itself. auto: one for each processor that the container may use.",
    )
    startup_timeout_seconds: NonNegativeInt = Field(
        300,
        description="Seconds that TensorFlow may wait for the other workers. 0 sets no limit. "
        "Over a ring, `STARTUP_TIMEOUT` applies instead.",
    )
    stall_timeout_seconds: AutoOrNonNegative = Field(
        "auto",
        description="Seconds that one call into TensorFlow may take. After that the run counts "
        "as stuck, and restarts from its last checkpoint. auto: a minute plus ten times the "
        "longest earlier call of the same kind. 0 sets no limit.",
    )
    stop_seconds: PositiveInt = Field(
        6,
        description="Seconds that a run may take to stop after SIGTERM. `docker stop` itself "
        "waits 10 s.",
    )
    gpus_per_worker: NonNegativeInt | None = Field(
        None,
        description="How many GPUs TensorFlow must find on this worker, whether or not all of "
        "them train. If unset: any number.",
    )
    unknown_arguments: CliUnknownArgs = Field(default=[], repr=False, exclude=True)

    @field_validator("dataset")
    @classmethod
    def _known_dataset(cls, name: str, info: ValidationInfo) -> str:
        if not data_sets.is_known(name, info.data.get("data_dir", Path("/data"))):
            raise validators.refuse(data_sets.ACCEPTED, did_you_mean(name, data_sets.tfds_names()))
        return name

    @field_validator("logical_cpus")
    @classmethod
    def _several_devices_need_a_strategy(
        cls, count: int | None, info: ValidationInfo
    ) -> int | None:
        if count is not None and count > 1 and info.data.get("strategy") == "none":
            raise validators.refuse(
                "1, since TRAINER_STRATEGY is none", "mirrored trains on several."
            )
        return count

    @field_validator("devices")
    @classmethod
    def _devices_that_can_be_had(cls, text: str | None, info: ValidationInfo) -> str | None:
        if text is None:
            return None
        if "," in text and info.data.get("strategy") == "none":
            raise validators.refuse(
                "one device, since TRAINER_STRATEGY is none", "mirrored trains on several."
            )
        num_cpus = info.data.get("logical_cpus")
        there = devices.numbered("CPU", num_cpus or 1)
        if (num_cpus or devices.are_cpus(text)) and not set(text.split(",")) <= set(there):
            cut = (
                f"is {num_cpus}" if num_cpus else "splits the CPU into more devices, and is not set"
            )
            raise validators.refuse(" ".join(there), f"TRAINER_LOGICAL_CPUS {cut}.")
        first = devices.numbered("CPU", text.count(",") + 1)
        if devices.are_cpus(text) and tuple(text.split(",")) != first:
            # Operations that no strategy places run on CPU:0.
            raise validators.refuse(",".join(first), "The parts of a CPU are alike: begin with 0.")
        return text

    @field_validator("wire")
    @classmethod
    def _goes_over_a_ring(cls, wire: str, info: ValidationInfo) -> str:
        if wire != "float32" and info.data.get("collectives") == "tensorflow":
            raise validators.refuse(
                "float32, since TRAINER_COLLECTIVES is tensorflow",
                "Only the ring sends bfloat16: TRAINER_COLLECTIVES=ring.",
            )
        return wire

    @field_validator("sync_every")
    @classmethod
    def _averages_over_a_ring(
        cls, steps: Literal["auto"] | int, info: ValidationInfo
    ) -> Literal["auto"] | int:
        if steps != 1 and info.data.get("collectives") == "tensorflow":
            raise validators.refuse(
                "1, since TRAINER_COLLECTIVES is tensorflow",
                "Only the workers of a ring take steps by themselves: TRAINER_COLLECTIVES=ring.",
            )
        return steps

    @field_validator("precision")
    @classmethod
    def _scales_no_loss_by_itself(cls, precision: str, info: ValidationInfo) -> str:
        if precision == "float16" and info.data.get("sync_every", 1) != 1:
            raise validators.refuse(
                f"float32 or bfloat16, since TRAINER_SYNC_EVERY is {info.data['sync_every']}",
                "float16 scales the loss, and each worker would arrive at a different scale.",
            )
        return precision

    @field_validator("sync_batch_norm")
    @classmethod
    def _sums_in_each_step(cls, is_wanted: bool, info: ValidationInfo) -> bool:  # noqa: FBT001
        if is_wanted and info.data.get("sync_every", 1) != 1:
            raise validators.refuse(
                f"false, since TRAINER_SYNC_EVERY is {info.data['sync_every']}",
                "Statistics of the whole batch are summed over the workers in each step.",
            )
        return is_wanted

    @field_validator("resume")
    @classmethod
    def _resumes_from_something(cls, resume: str, info: ValidationInfo) -> str:
        if resume == "must" and info.data.get("checkpoint_steps") == 0:
            raise validators.refuse("auto or never, since TRAINER_CHECKPOINT_STEPS is 0")
        return resume

    @field_validator("global_batch_size")
    @classmethod
    def _one_batch_size(cls, size: int | None, info: ValidationInfo) -> int | None:
        per_replica = info.data.get("per_replica_batch_size")
        if size is not None and per_replica is not None:
            raise validators.refuse(
                "one of the two batch sizes",
                f"TRAINER_PER_REPLICA_BATCH_SIZE is {per_replica}; leave one of them out.",
            )
        return size

    @property
    def profiled(self) -> tuple[int, int]:
        """The first and the last step to profile; (0, 0): there are none."""
        first, _, last = (self.profile_steps or "0-0").partition("-")
        return int(first), int(last)

    @property
    def profile_cuts(self) -> list[int]:
        """The steps at which a call has to end, so that a call has only profiled steps, or none."""
        first, last = self.profiled
        return [first - 1, last] if first else []

    def batch_size_per_replica(self, num_replicas: int) -> int:
        """Return the number of examples in a step for each of `num_replicas` replicas.

        Raises:
            ConfigurationError: the global batch size cannot be divided evenly.
        """
        if self.global_batch_size is None:
            return self.per_replica_batch_size or DEFAULT_PER_REPLICA_BATCH_SIZE
        if self.global_batch_size % num_replicas:
            accepted = f"a multiple of {num_replicas}, the number of replicas"
            received = str(self.global_batch_size)
            raise ConfigurationError([Problem(shown_name("global_batch_size"), received, accepted)])
        return self.global_batch_size // num_replicas

    def as_json(self) -> dict[str, Any]:
        """Return all settings as JSON values; a setting that a script overrides may be any text."""
        return self.model_dump(mode="json", warnings=False)

    def shared_settings(self) -> dict[str, str]:
        """Return the settings that must be the same on all workers: variable -> value as text."""
        settings = self.as_json()
        if self.global_batch_size is None:  # a worker may have set the default explicitly
            settings["per_replica_batch_size"] = self.batch_size_per_replica(1)
        # Workers may use different GPUs, but need the same number: TensorFlow does not check it.
        settings["devices"] = devices.counted(self.devices)
        return {
            variable_of(name): str(value)
            for name, value in settings.items()
            if name not in OWN_TO_EACH_WORKER
        }

    def run_settings(self) -> dict[str, str]:
        """Return the settings that a run must keep over all of its starts: variable -> value.

        The number of epochs is one of them only if the learning rate depends on it.
        """
        settings = self.as_json()
        auto_warmup = self.lr_scaling != "none" and self.warmup_steps == "auto"
        needs_epochs = self.learning_rate_schedule == "cosine" or auto_warmup
        names = [*OF_THE_RUN, *(["epochs"] if needs_epochs else [])]
        return {variable_of(name): str(settings[name]) for name in names}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003  the signature is pydantic-settings'
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take the constructor's arguments only, and never read os.environ."""
        return (init_settings,)

    @classmethod
    def read(
        cls,
        environ: Mapping[str, str],
        arguments: Sequence[str],
        settings: Mapping[str, Any] | None = None,
    ) -> Self:
        """Read the settings.

        Args:
            environ: the environment, with TRAINER_ variables.
            arguments: flags, which take precedence over variables.
            settings: settings by name, which take precedence over both.

        Raises:
            ConfigurationError: settings are not acceptable; it lists all problems.
            SystemExit: --help was requested and printed.
        """
        names, chosen = setting_names(), settings or {}
        problems = [*unknown_variables(environ, names), *unknown_settings(chosen, names)]
        try:
            # A script has no flags, and need not wait until a parser for all of them is built.
            of_flags = Flags(cls, arguments, [*map(flag_of, names)])() if arguments else {}
            given = Variables(cls, environ, PREFIX)() | of_flags
            problems += unknown_flags(given.pop("unknown_arguments", []), names)
            known = {name: value for name, value in chosen.items() if name in names}
            config = cls(**(given | known))
        except SettingsError as error:
            flags = " ".join(without_values(arguments))
            problems.append(Problem("the flags", flags, HELP_LISTS, f"{error}."))
        except ValidationError as error:
            problems += problems_of(error)
        if problems:
            raise ConfigurationError(problems)
        return config


def setting_names() -> list[str]:
    """Return the settings' names in the order of their definition."""
    return [name for name in TrainerConfig.model_fields if name != "unknown_arguments"]

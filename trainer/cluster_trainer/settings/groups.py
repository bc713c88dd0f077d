"""Groups of settings: own to each worker, used by scripts, fixed for a run."""

# Settings that may differ between workers. All others must be the same.
OWN_TO_EACH_WORKER = frozenset(
    {
        "data_dir",
        "cache",
        "run_dir",
        "model_dir",
        "threads",
        "startup_timeout_seconds",
        "stop_seconds",
        "stall_timeout_seconds",
        "tensorboard",
        "keep_earlier",
    }
)

# Settings that apply to a script with Keras's own `fit`, which decides the rest itself.
OF_SCRIPTS = (
    "run_dir",
    "checkpoint_steps",
    "resume",
    "keep_earlier",
    "tensorboard",
    "profile_steps",
    "logical_cpus",
    "devices",
    "collectives",
    "wire",
    "sync_every",
    "first_batch",
    "stall_timeout_seconds",
    "silence_seconds",
    "threads",
)

# Settings that decide the numbers of a run, beyond rounding (`jit`, `wire`). The batch and the
# steps of an epoch do, too, but their effective values depend on the data and the replicas.
OF_THE_OPTIMIZER = (
    "optimizer",
    "learning_rate",
    "learning_rate_schedule",
    "lr_scaling",
    "lr_scaling_base",
    "warmup_steps",
)
# Settings for compiling a model. A compiled model does not use them.
OF_COMPILING = (*OF_THE_OPTIMIZER, "loss", "metrics", "jit")
OF_THE_RUN = (
    "model",
    "dataset",
    "image_size",
    "augment",
    *OF_THE_OPTIMIZER,
    "loss",
    "metrics",
    "precision",
    "sync_batch_norm",
    "seed",
)

# The value of a setting that a script, or a compiled model, determines itself.
OWN = "the script's own"

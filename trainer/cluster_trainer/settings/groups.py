"""Which settings belong together: those that workers share, that a script heeds, that fix a run."""

# What each worker may have its own way; in all else workers that train together must agree.
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

# What a script with Keras's own `fit` heeds; it decides the rest itself.
OF_SCRIPTS = (
    "run_dir",
    "checkpoint_steps",
    "resume",
    "keep_earlier",
    "tensorboard",
    "profile_steps",
    "collectives",
    "wire",
    "first_batch",
    "stall_timeout_seconds",
    "silence_seconds",
    "threads",
)

# What decides the numbers of a run, beyond how they are rounded (`jit`, `wire`); the batch and the
# steps of an epoch, too, but their effective values depend on the data and the replicas.
OF_THE_OPTIMIZER = (
    "optimizer",
    "learning_rate",
    "learning_rate_schedule",
    "lr_scaling",
    "lr_scaling_base",
    "warmup_steps",
)
# What a model is compiled with; one that is compiled already takes none of it.
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

# In place of a setting: a script, or a model that is compiled, has it its own way.
OWN = "the script's own"

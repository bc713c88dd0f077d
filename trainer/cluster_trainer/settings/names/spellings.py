"""The spellings of a setting: run_dir is TRAINER_RUN_DIR, and --run-dir."""

PREFIX = "TRAINER_"


def variable_of(setting: str) -> str:
    """Return the variable of a setting."""
    return PREFIX + setting.upper()


def flag_of(setting: str) -> str:
    """Return the flag of a setting."""
    return "--" + setting.replace("_", "-")


def shown_name(setting: str) -> str:
    """Name a setting in a message, with both its names."""
    return f"{variable_of(setting)} ({flag_of(setting)})"

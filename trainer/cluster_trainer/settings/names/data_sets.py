"""The known data sets, without importing TensorFlow."""

from pathlib import Path

from cluster_trainer.settings.names.references import is_reference, module_exists

# Both are created while the image is built: the folder of its data sets, and a file with the names
# of all TFDS builders, one per line.
BAKED_DATA_DIR = Path("/opt/cluster-trainer/data")
TFDS_NAMES = Path("/opt/cluster-trainer/tfds-names.txt")
VARIABLE = "TRAINER_DATASET (--dataset)"
CACHE_VARIABLE = "TRAINER_CACHE (--cache)"
# Sets of which `make data-sample` makes samples.
SAMPLES = ("cats_vs_dogs", "tf_flowers")
ACCEPTED = "digits, a TensorFlow Datasets name such as mnist, or module:function of your own"


def is_known(name: str, data_dir: Path) -> bool:
    """Tell whether `name` is a TFDS set, prepared in `data_dir`, or a module:function."""
    if is_reference(name) and module_exists(name):
        return True
    builder = builder_name(name)
    return builder in tfds_names() or is_prepared(builder, data_dir)


def builder_name(name: str) -> str:
    """Return a TFDS name without configuration and version: `a/b:1.0.0` becomes `a`."""
    return name.partition("/")[0].partition(":")[0]


def is_prepared(builder: str, data_dir: Path) -> bool:
    """Tell whether any version of the set is in `data_dir`."""
    found = data_dir.glob(f"{builder}/**/dataset_info.json") if builder else ()
    # A killed preparation may have left one in a folder that TFDS never reads.
    return any("incomplete." not in str(file.relative_to(data_dir)) for file in found)


def tfds_names() -> frozenset[str]:
    """Return the names of the image's TFDS builders, and of the project's own.

    Outside the image there is no such list, and TFDS itself refuses unknown names.
    """
    listed = TFDS_NAMES.read_text().split() if TFDS_NAMES.exists() else []
    return frozenset(listed) | {"digits"}

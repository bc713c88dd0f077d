"""The names of models, and the smallest pictures of the built-in ones."""

from cluster_trainer.settings.names.references import is_reference, module_exists

BUILT_IN = {
    name: f"cluster_trainer.models.networks:{name}"
    for name in ("mnist_cnn", "mobilenet_v2", "resnet50")
}
# Height and width in pixels; Keras refuses smaller ones, even if the layers would fit.
SMALLEST_SIDES = {"mobilenet_v2": 32, "resnet50": 32}
ACCEPTED = f"{', '.join(BUILT_IN)}, or module:function of your own in /workspace"


def reference_of(name: str) -> str:
    """Return the module:function behind a model's name; a module:function is itself."""
    return BUILT_IN.get(name, name)


def is_known(name: str) -> bool:
    """Tell whether `name` is built in, or a module:function whose package exists."""
    return name in BUILT_IN or (is_reference(name) and module_exists(name))

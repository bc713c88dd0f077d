"""The devices of one machine, in a user's notation and in TensorFlow's."""

import re

ACCEPTED = "GPUs or CPUs by number, such as /gpu:0,/gpu:1, GPU:0 or /cpu:0"
NAME = re.compile(r"/?(?:device:)?(?P<kind>cpu|gpu):(?P<number>[0-9]{1,3})", re.IGNORECASE)


def parse(text: str) -> tuple[str, ...]:
    """Return the devices in a list in TensorFlow's notation, by number.

    The order of the list has no meaning, because TensorFlow numbers the devices that a process can
    see in the machine's own order.

    Raises:
        ValueError: an item is not a device, occurs twice, or is of another kind than the others.
    """
    found = [_parse_one(part.strip()) for part in text.split(",")]
    if len(set(found)) < len(found):
        message = "Name each device once."
        raise ValueError(message)
    if len({kind for kind, _ in found}) > 1:
        message = "CPUs and GPUs cannot be mixed: all would wait for the slowest."
        raise ValueError(message)
    return tuple(f"{kind}:{number}" for kind, number in sorted(found))


def _parse_one(text: str) -> tuple[str, int]:
    match = NAME.fullmatch(text)
    if match is None:
        message = f'"{text}" is no device.'
        raise ValueError(message)
    return match["kind"].upper(), int(match["number"])


def numbered(kind: str, count: int) -> tuple[str, ...]:
    """Return the names of the first `count` devices of a kind, CPU or GPU."""
    return tuple(f"{kind}:{number}" for number in range(count))


def are_cpus(text: str) -> bool:
    """Tell whether a list, in the notation that `parse` returns, has CPUs."""
    return text.startswith("CPU")


def counted(text: str | None) -> str:
    """Return the number and kind of the devices in a list, in the notation that `parse` returns."""
    if text is None:
        return "not given"
    count = text.count(",") + 1
    kind = "CPU" if are_cpus(text) else "GPU"
    return f"{count} {kind}" if count == 1 else f"{count} {kind}s"

"""Where a worker keeps the pictures of its data set: TRAINER_CACHE."""

from dataclasses import dataclass

from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.settings.names.data_sets import CACHE_VARIABLE, VARIABLE

# `auto` leaves the rest to the model, its batches, and other workers on the same machine.
SHARE_OF_MEMORY = 0.25


@dataclass(frozen=True)
class Room:
    """What a data set needs, and what is free here, in bytes.

    Attributes:
        decoded: all pictures of a set as bytes of red, green and blue.
        encoded: the same as JPEG or PNG.
        memory: what this process may still take.
        disk: free in the data directory; None: it cannot be written.
        directory: where on disk, for messages.
        is_on_disk: whether another process has decoded the set there already.
    """

    decoded: int
    encoded: int
    memory: int
    disk: int | None
    directory: str
    is_on_disk: bool = False

    @property
    def fitting(self) -> list[str]:
        """The caches that the set fits into."""
        fits = {
            "memory": self.decoded <= self.memory,
            "disk": self.is_on_disk or (self.disk is not None and self.decoded <= self.disk),
            "none": self.encoded <= self.memory,
        }
        return [cache for cache, does in fits.items() if does]

    def __str__(self) -> str:
        disk = "cannot be written" if self.disk is None else f"has {_mb(self.disk)} free"
        return (
            f"decoded it takes {_mb(self.decoded)}, as it is stored {_mb(self.encoded)}; "
            f"{_mb(self.memory)} of memory are free here, and {self.directory} {disk}"
        )


def choose(name: str, wanted: str, room: Room) -> str:
    """Return `memory`, `disk` or `none`: what is wanted, or for `auto` the first that fits well.

    Raises:
        ConfigurationError: the set does not fit.
    """
    fitting = room.fitting
    if wanted == "auto" and fitting:
        roomy = room.decoded <= SHARE_OF_MEMORY * room.memory
        order = ["memory", "disk", "none"] if roomy else ["disk", "none", "memory"]
        return next(cache for cache in order if cache in fitting)
    if wanted in fitting:
        return wanted
    advice = f"Of {name}: {room}."
    if fitting:
        accepted = f"a cache that the data set fits into: {' or '.join(fitting)}"
        raise ConfigurationError([Problem(CACHE_VARIABLE, wanted, accepted, advice)])
    accepted = "a set that fits into this worker's memory or onto its disk"
    advice += " A smaller TRAINER_IMAGE_SIZE may help."
    raise ConfigurationError([Problem(VARIABLE, name, accepted, advice)])


def _mb(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"

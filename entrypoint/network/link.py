"""The measured links of a ring, the slow ones among them, and a summary in one line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from entrypoint.errors import escaped

SLOW = 0.6
"""A link is slow if its rate is below this fraction of the usual one."""
FAR, FAR_SECONDS = 3.0, 0.001
"""A link is long if its round trip takes this multiple of the usual one, and at least this time."""
BITS, KILO, MEGA, GIGA = 8, 1e3, 1e6, 1e9
"""Factors for ms and Gbit/s."""
LARGEST = 1e9
"""The largest number of ms or Gbit/s that is read."""
LEAST_OF_GIGA = 0.1
"""A fraction of a Gbit/s: lower rates are shown in Mbit/s."""


@dataclass(frozen=True)
class Link:
    """The connection from one worker to the next of the ring, in that direction."""

    sender: str
    """`worker-0`."""
    receiver: str
    round_trip_seconds: float
    bits_per_second: float

    @property
    def name(self) -> str:
        """Both workers, in the direction of the data."""
        return f"{self.sender} -> {self.receiver}"

    @property
    def members(self) -> dict[str, Any]:
        """The link as members of a JSON object."""
        return {
            "from": self.sender,
            "to": self.receiver,
            "round_trip_ms": rounded(self.round_trip_seconds * KILO, 3),
            "gbit_per_second": rounded(self.bits_per_second / GIGA, 3),
        }


def read_link(members: Mapping[str, Any]) -> Link:
    """Return the link with these members. Raises KeyError, TypeError, ValueError."""
    numbers = float(members["round_trip_ms"]), float(members["gbit_per_second"])
    if not all(0 <= number <= LARGEST for number in numbers):  # NaN fails both comparisons
        raise ValueError(members)
    names = escaped(str(members["from"])), escaped(str(members["to"]))
    return Link(*names, numbers[0] / KILO, numbers[1] * GIGA)


def slow_links(links: Sequence[Link]) -> list[Link]:
    """Return the links that are much slower than usual, the slowest first."""
    usual = _middle(link.bits_per_second for link in links)
    slow = [link for link in links if link.bits_per_second < SLOW * usual]
    return sorted(slow, key=lambda link: link.bits_per_second)


def long_links(links: Sequence[Link]) -> list[Link]:
    """Return the links whose round trips take much longer than usual, the longest first."""
    usual = _middle(link.round_trip_seconds for link in links)
    least = max(FAR * usual, FAR_SECONDS)
    far = [link for link in links if link.round_trip_seconds > least]
    return sorted(far, key=lambda link: -link.round_trip_seconds)


def in_a_line(links: Sequence[Link]) -> str:
    """Return for example "0.3 ms, 9.1 Gbit/s; slowest worker-2 -> worker-0: 0.94 Gbit/s"."""
    slow, far = slow_links(links)[:1], long_links(links)[:1]
    usual = [
        round_trip(_middle(link.round_trip_seconds for link in links)),
        rate(_middle(link.bits_per_second for link in links)),
    ]
    slowest = [f"slowest {link.name}: {rate(link.bits_per_second)}" for link in slow]
    longest = [f"longest {link.name}: {round_trip(link.round_trip_seconds)}" for link in far]
    return "; ".join([", ".join(usual), *slowest, *longest])


def _middle(numbers: Iterable[float]) -> float:
    """Return the median; of an even count, the upper one. Importing `statistics` would be slow."""
    ordered = sorted(numbers)
    return ordered[len(ordered) // 2]


def rate(bits_per_second: float) -> str:
    """Return a rate with its unit and two digits."""
    if bits_per_second < LEAST_OF_GIGA * GIGA:
        return f"{rounded(bits_per_second / MEGA):g} Mbit/s"
    return f"{rounded(bits_per_second / GIGA):g} Gbit/s"


def round_trip(seconds: float) -> str:
    """Return a round trip with its unit and two digits."""
    return f"{rounded(seconds * KILO):g} ms"


def rounded(number: float, digits: int = 2) -> float:
    """Return a number with this number of digits."""
    return float(f"{number:.{digits}g}")

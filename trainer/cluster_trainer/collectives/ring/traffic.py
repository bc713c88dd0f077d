"""Counts the bytes that a rank's float32 sums have sent to the right, and their duration."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Traffic:
    """The sent bytes, the duration in seconds, and the number of float32 sums.

    These are the sums whose bytes bfloat16 can halve. The seconds include waiting for slower ranks.
    """

    sent_bytes: int = 0
    seconds: float = 0.0
    exchanges: int = 0

    def and_then(self, more: "Traffic") -> "Traffic":
        """Return both together."""
        return Traffic(
            self.sent_bytes + more.sent_bytes,
            self.seconds + more.seconds,
            self.exchanges + more.exchanges,
        )

    def since(self, before: "Traffic") -> "Traffic":
        """Return the difference to an earlier reading; a new ring begins at 0 again."""
        if self.exchanges < before.exchanges:
            return self
        return Traffic(
            self.sent_bytes - before.sent_bytes,
            self.seconds - before.seconds,
            self.exchanges - before.exchanges,
        )

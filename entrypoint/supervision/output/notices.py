"""Removes TensorFlow's uninformative notices at import from standard error.

TensorFlow writes them before it reads TF_CPP_MIN_LOG_LEVEL (2.21), so no setting hides them.
"""

from __future__ import annotations

import re

_NOTE = b"I0 0:0:0.0 0 "
_BUILT_FOR = _NOTE + b"cpu_feature_guard.cc:0] This TensorFlow binary is optimized to use available"
_SECOND_LINE = b"To enable the following instructions:"
NOTICES = (
    b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
    _NOTE + b"port.cc:0] oneDNN custom operations are on.",
    _BUILT_FOR,
)
"""The beginnings of these lines. Each number is 0, and several spaces are one."""

MOST_HELD = 4096
"""The number of bytes of a line that may be held back. All notices are shorter."""


def are_unwanted(level: str | None) -> bool:
    """Tell whether TF_CPP_MIN_LOG_LEVEL hides notices. If it is unset, it does not."""
    return bool(level and level.strip().isdecimal() and int(level) > 0)


class NoticeFilter:
    """Passes a stream of bytes on without these notices.

    Holds back a line only while it may be a notice, until the line ends or differs.
    """

    def __init__(self) -> None:
        self._held = b""
        self._begins = True
        self._wanted: tuple[bytes, ...] = NOTICES

    def feed(self, data: bytes) -> bytes:
        """Return the bytes to pass on, including held-back ones."""
        return b"".join(map(self._passed, data.splitlines(keepends=True)))

    def end(self) -> bytes:
        """Return the held-back bytes of an unfinished line."""
        held, self._held = self._held, b""
        return held

    def _passed(self, part: bytes) -> bytes:
        """Return the bytes to pass on for the next part of a line, with or without its end."""
        if not self._begins:
            self._begins = part.endswith(b"\n")
            return part
        line, self._held = self._held + part, b""
        prefix = _normal(line)
        if not line.endswith(b"\n"):
            if len(line) <= MOST_HELD and self._may_be_notice(prefix):
                self._held = line
                return b""
            self._begins, self._wanted = False, NOTICES
            return line
        is_notice = prefix.startswith(self._wanted)
        is_first_of_two = prefix.startswith(_BUILT_FOR)
        self._wanted = (*NOTICES, _SECOND_LINE) if is_first_of_two else NOTICES
        return b"" if is_notice else line

    def _may_be_notice(self, prefix: bytes) -> bool:
        return any(one.startswith(prefix) or prefix.startswith(one) for one in self._wanted)


def _normal(line: bytes) -> bytes:
    """Return the beginning of a line with 0 for each number and one space for several."""
    return re.sub(rb" +", b" ", re.sub(rb"[0-9]+", b"0", line[:256]))

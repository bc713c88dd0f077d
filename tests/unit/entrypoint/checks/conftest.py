"""A stand-in for nvidia-smi."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def nvidia_smi(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Make a PATH whose nvidia-smi prints a text for the given arguments, and fails for others."""

    def make(text: str, asked: str = "-L") -> dict[str, str]:
        program = tmp_path / "nvidia-smi"
        program.write_text(
            f"#!/bin/sh\n[ \"$*\" = '{asked}' ] && /bin/cat <<'END'\n{text}END\n",
        )
        program.chmod(0o755)
        return {"PATH": str(tmp_path)}

    return make

"""docs/architecture.md draws the entrypoint's rooms as they are, and no arrow leads upward."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "entrypoint"
ROW = re.compile(r"\| (\d) \| `entrypoint/([a-z_]+)(?:/|\.py)` \| [^|]+ \| ([^|]*) \|")


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("entrypoint."):
            yield str(node.module).split(".")[1]


def drawn() -> dict[str, tuple[int, set[str]]]:
    """Return each room of the document: its floor, and the rooms that it knows."""
    document = (ROOT / "docs/architecture.md").read_text()
    return {
        room: (int(floor), set(re.findall(r"[a-z_]+", known)))
        for floor, room, known in ROW.findall(document)
    }


def built() -> dict[str, set[str]]:
    """Return each room of the code, and the rooms that it imports."""
    found: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).with_suffix("").parts[0]
        found.setdefault(room, set()).update(set(imports(path)) - {room})
    del found["__init__"]
    return found


def test_the_document_shows_every_room_and_what_it_knows() -> None:
    assert {room: known for room, (_, known) in drawn().items()} == built()


def test_every_room_knows_only_those_on_the_floors_below() -> None:
    rooms = drawn()
    assert [
        f"{room} -> {other}"
        for room, (floor, known) in rooms.items()
        for other in known
        if rooms[other][0] >= floor
    ] == []

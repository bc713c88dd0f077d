"""docs/architecture.md draws both packages' rooms as they are, and no arrow leads upward."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs/architecture.md"
PACKAGES = {"entrypoint": ROOT / "entrypoint", "cluster_trainer": ROOT / "trainer/cluster_trainer"}

package = pytest.mark.parametrize("name", PACKAGES)


def imports(path: Path, name: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == name:
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{name}."):
            yield str(node.module).split(".")[1]


def drawn(name: str) -> dict[str, tuple[int, set[str]]]:
    """Return each room of the document: its floor, and the rooms that it knows."""
    row = re.compile(rf"\| (\d) \| `{name}/([a-z_]+)(?:/|\.py)` \| [^|]+ \| ([^|]*) \|")
    return {
        room: (int(floor), set(re.findall(r"[a-z_]+", known)))
        for floor, room, known in row.findall(DOCUMENT.read_text())
    }


def built(name: str) -> dict[str, set[str]]:
    """Return each room of the code, and the rooms that it imports."""
    found: dict[str, set[str]] = {}
    for path in PACKAGES[name].rglob("*.py"):
        room = path.relative_to(PACKAGES[name]).with_suffix("").parts[0]
        found.setdefault(room, set()).update(set(imports(path, name)) - {room})
    del found["__init__"]
    return found


@package
def test_the_document_shows_every_room_and_what_it_knows(name: str) -> None:
    assert {room: known for room, (_, known) in drawn(name).items()} == built(name)


@package
def test_every_room_knows_only_those_on_the_floors_below(name: str) -> None:
    rooms = drawn(name)
    assert [
        f"{room} -> {other}"
        for room, (floor, known) in rooms.items()
        for other in known
        if rooms[other][0] >= floor
    ] == []

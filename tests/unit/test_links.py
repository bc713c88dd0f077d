"""Links lead to pages that exist, and pictures need no other files."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"(?<![\w./-])docs/[\w/-]+\.(?:md|svg|png)\b")
SVG = "{http://www.w3.org/2000/svg}"


def pages() -> list[Path]:
    folders = ("docs", "examples", "patches", "benchmarks", ".github")
    return sorted(
        [*ROOT.glob("*.md"), *(f for name in folders for f in ROOT.glob(f"{name}/**/*.md"))]
    )


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to a page's headings."""
    headings = HEADING.findall(CODE.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    for link in LINK.findall(CODE.sub("", page.read_text())):
        path, _, anchor = link.partition("#")
        if ":" in path or path.startswith("../../"):  # another site, or GitHub's own pages
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), link


def test_messages_and_comments_name_pages_that_are_there():
    folders = ("entrypoint", "trainer", "compose", "scripts", "tests", "benchmarks", "examples")
    files = [f for name in folders for f in ROOT.glob(f"{name}/**/*") if f.suffix in (".py", ".sh")]
    files += [ROOT / "Makefile", ROOT / "Dockerfile", ROOT / ".github/ISSUE_TEMPLATE/bug.yml"]
    named = {(file.name, page) for file in files for page in NAMED.findall(file.read_text())}
    assert len(named) > 10
    assert {(file, page) for file, page in named if not (ROOT / page).exists()} == set()


@pytest.mark.parametrize("picture", sorted(ROOT.glob("docs/**/*.svg")), ids=lambda file: file.name)
def test_a_picture_says_what_it_shows_and_needs_nothing_else(picture):
    root = ET.parse(picture).getroot()
    assert root.find(f"{SVG}title").text.strip()
    assert root.find(f"{SVG}desc").text.strip()
    assert not re.search(r"(href|src|url\()[^>]*https?://", picture.read_text())

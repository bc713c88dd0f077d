"""Generates a small text, so that the example needs no download: short reports from a harbour."""

import random
from pathlib import Path

PEOPLE = "the old keeper", "a young sailor", "the baker's daughter", "her brother", "the pilot"
DEEDS = "counts", "watches", "paints", "remembers", "waits for", "draws"
THINGS = "the ships", "three grey gulls", "a lantern", "the northern lights", "every wave"
PLACES = "on the pier", "behind the lighthouse", "at the window", "below the cliffs"
TIMES = "before dawn", "in the evening", "when the wind turns", "after the rain", "at noon"
ENDS = "and says nothing", "and goes home", "and smiles", "until the bell rings"
FILES, SENTENCES = 4, 500


def sentence(draws):
    """Return one of 48,000 sentences."""
    who, deed, thing, place, time, end = map(
        draws.choice, (PEOPLE, DEEDS, THINGS, PLACES, TIMES, ENDS)
    )
    if draws.random() < 0.5:  # noqa: PLR2004
        return f"{who} {deed} {thing} {place} {time}, {end}.".capitalize()
    return f"{time}, {who} {deed} {thing} {place}, {end}.".capitalize()


def write_stories(folder):
    """Write the text into files and return their paths. Every call writes the same text."""
    draws = random.Random(7)  # noqa: S311
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{number}.txt" for number in range(FILES)]
    for file in files:
        file.write_text("\n".join(sentence(draws) for _ in range(SENTENCES)) + "\n")
    return [str(file) for file in files]


if __name__ == "__main__":
    print(*write_stories(Path("text")))

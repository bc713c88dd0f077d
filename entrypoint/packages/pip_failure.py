"""What pip's failure means: something for the user to change, or a network that may come back."""

from __future__ import annotations

import re
from dataclasses import dataclass

from entrypoint.errors import EXIT_PEER_LOST, Problem, shortened
from entrypoint.packages.requirements import PYTHON

LONGEST_SENTENCE = 600
"""Characters of pip's own words; it lists every version there is."""

UNREACHED = re.compile(r"Could not fetch URL \S+: (?!404 )(.*) - skipping")
BROKEN_OFF = re.compile(r"ERROR: <\w+: ((?:proxy-)?connection-\w+|incomplete-download)>")
LASTING = re.compile(r"certificate verify failed|40[13] Client Error")
"""What an index says, and will say again."""
ERROR = re.compile(r"(?m)^ *(?:pip: error|ERROR): (?!ResolutionImpossible)(.*(?:\n +\S.*)*)")
CAUSE = re.compile(r"(?m)^The conflict is caused by:\n((?: +\S.*\n)+)")


@dataclass(frozen=True)
class Mistake:
    """A failure that the user can mend: how it is known, what was right, what to do."""

    pattern: str
    """Of pip's words; its group is what was received."""
    accepted: str
    advice: str


NO_WHEEL = "The image has no compiler, so only wheels are installed."
MISTAKES = (
    Mistake(
        r"Cannot install (.+) because",
        "packages that go with the image's own",
        "The image's packages keep their versions: ask for those, or for none.",
    ),
    Mistake(
        r"(certificate verify failed.*?) \(_ssl",
        "an index whose certificate is known here",
        "Mount your certificates and name their file in PIP_CERT.",
    ),
    Mistake(
        r"(40[13] Client Error: .*) - skipping",
        "an index that may be read from here",
        "Its user and password belong into PIP_INDEX_URL.",
    ),
    Mistake(
        r"No sources permitted for (\S+):[\s\S]*requirement \1\b.*\(from versions: none\)",
        f"packages that there are as a wheel for {PYTHON}",
        NO_WHEEL,
    ),
    Mistake(
        r"No matching distribution found for (.+)",
        f"packages that there are as a wheel for {PYTHON}",
        f"The name or the version is wrong, or there is no wheel. {NO_WHEEL}",
    ),
    Mistake(r"Invalid requirement: (.+?)(?:: Expected|\n)", "what pip can read", ""),
    Mistake(r"(?:ERROR|error): (.+)", "what pip can install", ""),
)


def verdict_on(said: str, file: str) -> Problem | tuple[int, str]:
    """Return what the user has to change, or the exit code and reason of a start to try again.

    `said` is all that pip has logged, its debugging notes too.
    """
    reasons = [*UNREACHED.findall(said), *BROKEN_OFF.findall(said)]
    if reasons and not any(map(LASTING.search, reasons)):
        return EXIT_PEER_LOST, (
            f"the packages of {file} could not be fetched: {shortened(reasons[-1].rstrip('.'))}. "
            "Is the package index reachable from here (PIP_INDEX_URL, PIP_PROXY)?"
        )
    for mistake in MISTAKES:
        if match := re.search(mistake.pattern, said):
            advice = f"{mistake.advice} {_words(said)}".lstrip()
            return Problem(file, match[1], mistake.accepted, advice)
    return Problem(file, "", "what pip can install", _words(said))


def _words(said: str) -> str:
    """Return pip's own sentences, on one line."""
    errors = [*ERROR.findall(said), *CAUSE.findall(said)] or [said[-LONGEST_SENTENCE:]]
    words = "; ".join(" ".join(error.split()) for error in errors)
    return f"pip says: {shortened(words, LONGEST_SENTENCE)}"

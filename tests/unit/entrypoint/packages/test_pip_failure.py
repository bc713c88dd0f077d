"""The verdict on a failure of pip. tests/image/test_pip_failures.py runs pip itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from entrypoint.errors import Problem, render
from entrypoint.packages.pip_failure import verdict_on
from entrypoint.packages.run_pip import PipFailure, without_credentials

FILE = Path("requirements.txt")
URL = "http://***@index.example/simple/tiny/"
NO_MATCH = (
    "Looking in indexes: http://***@index.example/simple\n"
    "ERROR: Could not find a version that satisfies the requirement tiny (from versions: none)\n"
    "ERROR: No matching distribution found for tiny\n"
)
REFUSED = "connection error: [Errno 111] Connection refused"
BUSY = "Max retries exceeded with url: /tiny (Caused by ResponseError('too many 503 error …'))"
CONFLICT = """\
Looking in links: /wheels
ERROR: Cannot install numpy==1.26.4 because these package versions have conflicting dependencies.

The conflict is caused by:
    The user requested numpy==1.26.4
    The user requested (constraint) numpy==2.4.6

ERROR: ResolutionImpossible: for help visit https://pip.pypa.io/
"""


def failure(output: str, *unreached: str, code: int = 1) -> PipFailure:
    """Return a failure of pip, with the reasons why an index could not be read."""
    notes = [
        f"2026-11-22T12:17:35,622 Could not fetch URL {URL}: {it} - skipping" for it in unreached
    ]
    return PipFailure(code, output, "\n".join(["2026-11-22T12:17:35,311 Using pip 26.3", *notes]))


@pytest.mark.parametrize(
    "failed",
    [
        failure(NO_MATCH, REFUSED),
        failure(NO_MATCH, "proxy connection error: ('Unable to connect to proxy', …)"),
        failure(NO_MATCH, BUSY),
        failure(NO_MATCH, "504 Server Error: Gateway Timeout for url: …"),
        failure(NO_MATCH, "429 Client Error: Too Many Requests for url: …"),
        failure(NO_MATCH, "index.example didn't respond within 15.0 seconds"),
        failure(NO_MATCH, "404 Client Error: Not Found", REFUSED),
        failure(CONFLICT, REFUSED),
        failure("error: incomplete-download\n\nDownload failed after 6 attempts\n"),
        failure("error: connection-failed\n\nFailed to connect to h\n╰─> Connection refused\n"),
        failure(
            f"ERROR: Could not install packages due to an OSError: HTTPConnectionPool: {BUSY}\n"
        ),
    ],
)
def test_a_network_may_come_back(failed: PipFailure) -> None:
    verdict = verdict_on(failed, FILE)
    assert isinstance(verdict, tuple)
    code, reason = verdict
    assert code == 75
    assert "requirements.txt could not be fetched: " in reason


@pytest.mark.parametrize(
    ("failed", "received", "words"),
    [
        (failure(CONFLICT), "Cannot install numpy==1.26.4", "(constraint) numpy==2.4.6"),
        (failure(NO_MATCH), "Could not find a version", "No matching distribution found for tiny"),
        (failure(NO_MATCH, "404 Client Error"), "Could not find a version", "found for tiny"),
        (failure(NO_MATCH, "403 Client Error: Forbidden"), "Could not find", "403 Client Error"),
        (failure(NO_MATCH, "certificate verify failed: …"), "Could not", "certificate verify fail"),
        (failure(NO_MATCH, "proxy connection error: 407 Proxy …"), "Could not find", "407 Proxy"),
        (failure("error: connection-failed\nTunnel: 407 Proxy …"), "connection-failed", "407 Pro"),
        (failure("ERROR: Invalid requirement: 'a : b'\n"), "Invalid requirement: 'a : b'", ""),
        (failure("  ERROR: Error 2\nERROR: Cannot find command 'git'\n"), "Error 2", "'git'"),
        (failure("pip: error: no such option: --x\n"), "no such option: --x", ""),
        (failure("Collecting tiny\n", code=-9), "pip was killed by SIGKILL", "Collecting tiny"),
        (failure("", code=2), "pip's exit code 2", ""),
    ],
)
def test_a_mistake_is_said_with_pips_own_words(
    failed: PipFailure, received: str, words: str
) -> None:
    problem = verdict_on(failed, FILE)
    assert isinstance(problem, Problem)
    assert problem.name == "requirements.txt"
    assert problem.received is not None
    assert problem.received.startswith(received)
    assert words in problem.advice
    assert render([problem]).count(received) == 1


@pytest.mark.parametrize("code", [2, 3])
def test_settings_that_pip_refuses_are_no_fault_of_the_requirements(code: int) -> None:
    words = "option timeout: invalid floating-point value: 'abc'."
    problem = verdict_on(PipFailure(code, f"{words}\n", notes=""), FILE)
    assert isinstance(problem, Problem)
    assert "requirements.txt" not in problem.name
    assert problem.received == words


def test_pips_words_are_bounded_and_the_last_ones_stay() -> None:
    problem = verdict_on(
        failure("ERROR: Exception:\n" + "  File\n" * 9000 + "ValueError: 5\n"), FILE
    )
    assert isinstance(problem, Problem)
    message = render([problem])
    assert "ValueError: 5" in message
    assert len(message) < 1500


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("in https://me:pass@host/simple, x", "in https://***@host/simple, x"),
        ("https://token@host/simple", "https://***@host/simple"),
        ("https://me:p/a@s@host/simple", "https://***@host/simple"),
        ("Failed to parse: http://me:pass@bad host:9", "Failed to parse: http://***@bad host:9"),
        ("'me:pass@nowhere/tiny/' is ignored", "'me:***@nowhere/tiny/' is ignored"),
        ("tiny @ git+https://me:pass@host/x.git", "tiny @ git+https://***@host/x.git"),
        ("https://s3/tiny.whl?X-Signature=abc&d=1 (from", "https://s3/tiny.whl?*** (from"),
        ("broken: /simple/tiny/?token=abc", "broken: /simple/tiny/?***"),
        ("tiny @ https://host/tiny.whl", "tiny @ https://host/tiny.whl"),
        ("why? tiny-1.0: a@b.example", "why? tiny-1.0: a@b.example"),
    ],
)
def test_credentials_are_hidden(text: str, shown: str) -> None:
    assert without_credentials(text) == shown


def test_the_name_of_a_package_decides_nothing() -> None:
    url = "http://index.example/simple/x509-certificates/"
    notes = f"2026-11-22T12:17:35,622 Could not fetch URL {url}: {REFUSED} - skipping"
    assert isinstance(verdict_on(PipFailure(1, NO_MATCH, notes), FILE), tuple)


@pytest.mark.parametrize(
    ("failed", "received"),
    [
        (PipFailure(1, "Traceback (most recent call last)\nOSError: [Errno 28] full\n", ""), "OSE"),
        (PipFailure(-9, "", ""), "pip was killed by SIGKILL"),
        (PipFailure(-35, "", ""), "pip was killed by signal 35"),
    ],
)
def test_pip_that_could_not_begin_is_no_matter_of_its_settings(
    failed: PipFailure, received: str
) -> None:
    verdict = verdict_on(failed, FILE)
    assert isinstance(verdict, Problem)
    assert verdict.name == "requirements.txt"
    assert (verdict.received or "").startswith(received)

"""PREEMPTION_NOTICE: the notice of each cloud stops a worker as SIGTERM does."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from threading import Timer

import pytest

from entrypoint.log import Log
from entrypoint.supervision.preemption.clouds import CLOUDS, Aws, Azure, Notice
from entrypoint.supervision.preemption.metadata_server import MetadataError, MetadataServer
from entrypoint.supervision.preemption.watch import wait_for_notice
from harness.metadata_servers import HANDLERS, NAME, WHEN, State, serving

TEXTS = {
    "aws": f"AWS will terminate this machine at {WHEN}",
    "gcp": "Google Cloud preempts this machine",
    "azure": "Azure evicts this machine, not before Sat, 28 Nov 2026 15:00:00 GMT",
}
SOON_SECONDS = 8.0
NOBODY = "http://127.0.0.1:9"  # the port of `discard`


def look(cloud: str, state: State) -> Notice | None:
    with serving(cloud, state) as url:
        return CLOUDS[cloud]().look(MetadataServer(url), waits=False)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_no_notice_is_none(cloud: str) -> None:
    assert look(cloud, State()) is None


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_notice_says_what_happens_and_when(cloud: str) -> None:
    assert look(cloud, State(is_told=lambda: True)) == Notice(TEXTS[cloud])


def test_a_rebalance_recommendation_is_no_end() -> None:
    notice = look("aws", State(is_at_risk=True))
    assert notice == Notice(
        f"since {WHEN}, AWS has expected to interrupt this machine soon", is_end=False
    )


def test_an_expired_token_is_replaced() -> None:
    state = State()
    aws = Aws()
    with serving("aws", state) as url:
        server = MetadataServer(url)
        assert aws.look(server, waits=False) is None
        state.token = "another"
        assert aws.look(server, waits=False) is None
    assert state.requests.count("PUT /latest/api/token") == 2


def test_an_event_of_another_machine_of_the_scale_set_is_not_ours() -> None:
    state = State(is_told=lambda: True, resources=["vm-4", f"{NAME}0"])
    assert look("azure", state) is None


def test_google_cloud_is_asked_to_answer_at_the_change() -> None:
    told: list[bool] = []
    state = State(is_told=lambda: bool(told))
    gcp = CLOUDS["gcp"]()
    with serving("gcp", state) as url:
        server = MetadataServer(url)
        assert gcp.look(server, waits=True) is None
        timer = Timer(0.3, told.append, [True])
        timer.start()
        began = time.monotonic()
        assert gcp.look(server, waits=True) == Notice(TEXTS["gcp"])
        assert time.monotonic() - began < SOON_SECONDS
        timer.join()
    assert len(state.requests) == 2
    assert "wait_for_change=true" in state.requests[1]


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_server_that_is_not_the_clouds_is_an_error(cloud: str) -> None:
    other = next(name for name in HANDLERS if name != cloud)
    with serving(other, State(is_told=lambda: True)) as url, pytest.raises(MetadataError):
        CLOUDS[cloud]().look(MetadataServer(url), waits=False)


def test_a_server_that_does_not_answer_is_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    class Impatient(Azure):
        pause_seconds = 0.01
        advice = "Advice."
        looks = 0

        def look(self, server: MetadataServer, *, waits: bool) -> Notice | None:
            self.looks += 1
            if self.looks == 5:
                return Notice("the end")
            return super().look(server, waits=waits)

    assert wait_for_notice(Impatient(), MetadataServer(NOBODY), Log("worker-0")).text == "the end"
    (line,) = capfd.readouterr().err.splitlines()
    assert line.endswith(
        f"WARNING worker-0 Azure's metadata server at {NOBODY} gives no preemption notices: "
        "Connection refused. Training continues, and the server is asked again every 0.01 s. "
        "Advice."
    )


def test_a_recommendation_is_said_once_and_training_goes_on(
    capfd: pytest.CaptureFixture[str],
) -> None:
    class Impatient(Aws):
        pause_seconds = 0.01

    looks: list[int] = []

    def is_told() -> bool:
        looks.append(1)
        return len(looks) > 4

    with serving("aws", State(is_told=is_told, is_at_risk=True)) as url:
        wait_for_notice(Impatient(), MetadataServer(url), Log("worker-0"))
    (line,) = capfd.readouterr().err.splitlines()
    assert line.endswith("soon; training continues (PREEMPTION_NOTICE)")


WAIT = ("sh", "-c", "trap 'echo told; exit 5' TERM; echo up > up; while :; do sleep 0.1; done")


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_notice_stops_the_command_as_sigterm_does(
    run: Callable, tmp_path: Path, cloud: str
) -> None:
    up = tmp_path / "workspace" / "up"
    with serving(cloud, State(is_told=up.exists)) as url:
        ended = run(*WAIT, PREEMPTION_NOTICE=cloud, PREEMPTION_URL=url)
    assert (ended.code, ended.stdout) == (143, "told\n")
    assert f"{TEXTS[cloud]}: stopping as after SIGTERM (PREEMPTION_NOTICE)" in ended.stderr
    assert "stopped by SIGTERM (it ended with exit code 5)" in ended.stderr


def test_a_worker_does_not_start_on_a_machine_that_was_told_of_its_end(
    run: Callable, tmp_path: Path
) -> None:
    with serving("aws", State(is_told=lambda: True)) as url:
        ended = run("touch", "ran", PREEMPTION_NOTICE="aws", PREEMPTION_URL=url)
    assert ended.code == 143
    assert f"INFO worker-0 {TEXTS['aws']}: not starting (PREEMPTION_NOTICE)\n" in ended.stderr
    assert not (tmp_path / "workspace" / "ran").exists()


def test_without_a_server_the_command_runs_and_the_watch_ends_with_it(run: Callable) -> None:
    ended = run("sleep", "0.5", PREEMPTION_NOTICE="AWS", PREEMPTION_URL=NOBODY)
    assert ended.code == 0
    (line,) = [line for line in ended.stderr.splitlines() if "preemption" in line]
    assert re.search(r"Connection refused\..* HttpPutResponseHopLimit is 2 or more\.$", line)


def test_nothing_is_asked_unless_it_was_asked_for(run: Callable) -> None:
    state = State()
    with serving("aws", state) as url:
        refused = run("true", PREEMPTION_URL=url)
    assert refused.code == 78
    assert "an address together with PREEMPTION_NOTICE, which is not set" in refused.stderr
    assert state.requests == []


@pytest.mark.parametrize(
    ("variables", "accepted"),
    [
        ({"PREEMPTION_NOTICE": "ibm"}, "aws or gcp or azure"),
        ({"PREEMPTION_NOTICE": "aws", "PREEMPTION_URL": "https://h"}, "http:// with a host"),
        ({"PREEMPTION_NOTICE": "aws", "PREEMPTION_URL": "http://h/p"}, "http:// with a host"),
        ({"PREEMPTION_NOTICE": "aws", "PREEMPTION_URL": "http://h:65536"}, "http:// with a host"),
        ({"PREEMPTION_NOTICE": "aws", "PREEMPTION_URL": "http://h:0"}, "http:// with a host"),
        ({"PREEMPTION_NOTICE": "aws", "PREEMPTION_URL": "http://[:::1]"}, "http:// with a host"),
    ],
)
def test_other_values_are_refused(run: Callable, variables: dict[str, str], accepted: str) -> None:
    ended = run("true", **variables)
    assert ended.code == 78
    assert f"accepted: {accepted}" in ended.stderr


@pytest.mark.parametrize("url", ["http://[fd00:ec2::254]", "http://metadata.google.internal:80/"])
def test_other_addresses_are_accepted(run: Callable, url: str) -> None:
    assert run("explain", PREEMPTION_NOTICE="aws", PREEMPTION_URL=url).code == 0

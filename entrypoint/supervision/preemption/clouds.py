"""How each cloud announces the end of a machine at its metadata address.

Sources:
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/rebalance-recommendations.html
https://cloud.google.com/compute/docs/instances/create-use-preemptible
https://cloud.google.com/compute/docs/metadata/querying-metadata
https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from entrypoint.strict_json import StrictJSONError, parse_object
from entrypoint.supervision.preemption.metadata_server import (
    REQUEST_SECONDS,
    MetadataError,
    MetadataServer,
    Reply,
)

OK, UNAUTHORIZED, NOT_FOUND = 200, 401, 404


@dataclass(frozen=True)
class Notice:
    """A cloud's announcement about this machine."""

    text: str
    """A sentence without its full stop."""
    is_end: bool = True
    """Whether the machine is about to end; otherwise it is only likely to."""


class Cloud(ABC):
    """A cloud's metadata server. The object keeps the state that the next request needs."""

    name: str
    url: str
    pause_seconds: float
    """The pause between two requests."""
    advice: str = ""
    """A likely reason for a server that does not answer, as a sentence; or ""."""

    @abstractmethod
    def look(self, server: MetadataServer, *, waits: bool) -> Notice | None:
        """Return the notice; None if there is none.

        With `waits`, the server may delay its answer until something changes. Raises
        MetadataError.
        """


class Aws(Cloud):
    """EC2: spot interruption notices, two minutes before; and rebalance recommendations."""

    name, url, pause_seconds = "AWS", "http://169.254.169.254", 5.0
    advice = (
        "In a container without --network host, AWS answers only if the instance's "
        "HttpPutResponseHopLimit is 2 or more."
    )
    token_seconds = 21_600
    metadata = "/latest/meta-data"

    def __init__(self) -> None:
        self._token: str | None = None

    def look(self, server: MetadataServer, *, waits: bool) -> Notice | None:  # noqa: ARG002 -- it never waits
        """Return the notice; see Cloud."""
        action = self._ask(server, "/spot/instance-action")
        if action.status == OK:
            found = _object(action)
            return Notice(f"AWS will {found.get('action')} this machine at {found.get('time')}")
        rebalance = self._ask(server, "/events/recommendations/rebalance")
        if rebalance.status == OK:
            since = _object(rebalance).get("noticeTime")
            text = f"since {since}, AWS has expected to interrupt this machine soon"
            return Notice(text, is_end=False)
        return None

    def _ask(self, server: MetadataServer, path: str) -> Reply:
        """Ask with a session token; with a new one if the old one has expired."""
        reply = self._ask_once(server, path)
        if reply.status == UNAUTHORIZED:
            self._token = None
            reply = self._ask_once(server, path)
        return _checked(reply, OK, NOT_FOUND)

    def _ask_once(self, server: MetadataServer, path: str) -> Reply:
        if self._token is None:
            lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": str(self.token_seconds)}
            reply = server.ask("/latest/api/token", lifetime, method="PUT")
            self._token = _checked(reply, OK).text
        return server.ask(f"{self.metadata}{path}", {"X-aws-ec2-metadata-token": self._token})


class Gcp(Cloud):
    """Compute Engine: the preemption of a spot VM, 30 s before."""

    name, url, pause_seconds = "Google Cloud", "http://169.254.169.254", 1.0
    path = "/computeMetadata/v1/instance/preempted"
    flavor: Mapping[str, str] = {"Metadata-Flavor": "Google"}
    wait_seconds = 30

    def __init__(self) -> None:
        self._etag: str | None = None

    def look(self, server: MetadataServer, *, waits: bool) -> Notice | None:
        """Return the notice; see Cloud."""
        path, seconds = self.path, REQUEST_SECONDS
        if waits and self._etag:
            query = f"wait_for_change=true&timeout_sec={self.wait_seconds}&last_etag={self._etag}"
            path, seconds = f"{path}?{query}", self.wait_seconds + REQUEST_SECONDS
        reply = _checked(server.ask(path, self.flavor, seconds=seconds), OK)
        if reply.headers.get("metadata-flavor") != "Google":
            reason = "the server that answers is not Google Cloud's"
            raise MetadataError(reason)
        self._etag = reply.headers.get("etag")
        is_preempted = reply.text.strip().upper() == "TRUE"
        return Notice("Google Cloud preempts this machine") if is_preempted else None


class Azure(Cloud):
    """Azure: evictions of spot VMs, 30 s before, and deletions."""

    name, url, pause_seconds = "Azure", "http://169.254.169.254", 1.0
    events = "/metadata/scheduledevents?api-version=2020-07-01"
    own_name = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
    asks: Mapping[str, str] = {"Metadata": "true"}
    ends: Mapping[str, str] = {"Preempt": "evicts", "Terminate": "deletes"}

    def __init__(self) -> None:
        self._name: str | None = None

    def look(self, server: MetadataServer, *, waits: bool) -> Notice | None:  # noqa: ARG002 -- it never waits
        """Return the notice; see Cloud. A scale set's events are those of all its machines."""
        if self._name is None:
            self._name = _checked(server.ask(self.own_name, self.asks), OK).text.strip()
        found = _object(_checked(server.ask(self.events, self.asks), OK))
        for event in _events(found):
            kind = str(event.get("EventType"))
            resources = event.get("Resources")
            if kind not in self.ends or not isinstance(resources, list):
                continue
            if self._name in resources:
                when = event.get("NotBefore") or "now"
                return Notice(f"Azure {self.ends[kind]} this machine, not before {when}")
        return None


CLOUDS: Mapping[str, type[Cloud]] = {"aws": Aws, "gcp": Gcp, "azure": Azure}
"""By PREEMPTION_NOTICE's values."""


def _events(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    events = document.get("Events")
    if not isinstance(events, list):
        reason = 'its answer has no list "Events"'
        raise MetadataError(reason)
    yield from (event for event in events if isinstance(event, dict))


def _checked(reply: Reply, *expected: int) -> Reply:
    """Return a reply with an expected status. Raises MetadataError."""
    if reply.status not in expected:
        reason = f"it answers with HTTP status {reply.status}"
        raise MetadataError(reason)
    return reply


def _object(reply: Reply) -> Mapping[str, Any]:
    try:
        return parse_object(reply.text)
    except StrictJSONError as error:
        reason = f"its answer is not a JSON object: {error}"
        raise MetadataError(reason) from None

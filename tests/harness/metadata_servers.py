"""Metadata servers that answer like those of the clouds.

`python metadata_servers.py CLOUD PORT FILE` runs a server. It has a notice once FILE exists.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from urllib.parse import parse_qs, urlsplit

TOKEN = "a-token"
NAME = "vm-3"
WHEN = "2026-11-28T15:00:00Z"


@dataclass
class State:
    """The state of a server.

    Attributes:
        is_told: whether there is a notice.
        is_at_risk: whether AWS recommends a new instance.
        token: the token that AWS accepts.
        resources: the machines in Azure's event.
        requests: the requests so far, each as method and path.
    """

    is_told: Callable[[], bool] = lambda: False
    is_at_risk: bool = False
    token: str = TOKEN
    resources: list[str] = field(default_factory=lambda: [NAME])
    requests: list[str] = field(default_factory=list)


class _Handler(BaseHTTPRequestHandler):
    state: State

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def reply(self, status: int, text: str = "", **headers: str) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def note(self) -> None:
        self.state.requests.append(f"{self.command} {self.path}")


class AwsHandler(_Handler):
    """AWS's IMDSv2, which answers nothing without a token."""

    def do_PUT(self) -> None:
        """Return a token; the request must name its lifetime."""
        self.note()
        lifetime = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "0")
        is_right = self.path == "/latest/api/token" and 0 < int(lifetime) <= 21_600
        self.reply(200, self.state.token) if is_right else self.reply(400)

    def do_GET(self) -> None:
        """Answer 404 until there is a notice."""
        self.note()
        documents = {
            "/latest/meta-data/spot/instance-action": (
                self.state.is_told(),
                {"action": "terminate", "time": WHEN},
            ),
            "/latest/meta-data/events/recommendations/rebalance": (
                self.state.is_at_risk,
                {"noticeTime": WHEN},
            ),
        }
        is_there, document = documents.get(self.path, (False, {}))
        if self.headers.get("X-aws-ec2-metadata-token") != self.state.token:
            self.reply(401)
        elif is_there:
            self.reply(200, json.dumps(document))
        else:
            self.reply(404)


class GcpHandler(_Handler):
    """Google's server: one value. A client can wait until it changes."""

    def do_GET(self) -> None:
        """Answer TRUE or FALSE. With wait_for_change, answer after a change or the time limit."""
        self.note()
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        if self.headers.get("Metadata-Flavor") != "Google":
            self.reply(403)
        elif url.path != "/computeMetadata/v1/instance/preempted":
            self.reply(404)
        else:
            if "wait_for_change" in query and query["last_etag"] == [self._etag]:
                self._wait(float(query["timeout_sec"][0]))
            text = str(self.state.is_told()).upper()
            self.reply(200, text, Metadata_Flavor="Google", ETag=self._etag)

    @property
    def _etag(self) -> str:
        return f"etag-{self.state.is_told()}"

    def _wait(self, seconds: float) -> None:
        pause = Event()
        for _ in range(int(seconds / 0.05)):
            if self.state.is_told():
                return
            pause.wait(0.05)


class AzureHandler(_Handler):
    """Azure's server: the events of all machines of a scale set."""

    def do_GET(self) -> None:
        """Answer with the name of the machine, or with the events."""
        self.note()
        url = urlsplit(self.path)
        if self.headers.get("Metadata") != "true" or "api-version" not in parse_qs(url.query):
            self.reply(400)
        elif url.path == "/metadata/instance/compute/name":
            self.reply(200, NAME)
        elif url.path == "/metadata/scheduledevents":
            self.reply(200, json.dumps({"DocumentIncarnation": 1, "Events": self._events()}))
        else:
            self.reply(404)

    def _events(self) -> list[dict[str, object]]:
        event = {
            "EventId": "f020ba2e",
            "EventStatus": "Scheduled",
            "EventType": "Preempt",
            "ResourceType": "VirtualMachine",
            "Resources": self.state.resources,
            "NotBefore": "Sat, 28 Nov 2026 15:00:00 GMT",
        }
        freeze = event | {"EventType": "Freeze", "Resources": [NAME]}
        return [freeze, event] if self.state.is_told() else [freeze]


HANDLERS = {"aws": AwsHandler, "gcp": GcpHandler, "azure": AzureHandler}


def _server(cloud: str, state: State, host: str, port: int) -> ThreadingHTTPServer:
    handler = type("Handler", (HANDLERS[cloud],), {"state": state})
    return ThreadingHTTPServer((host, port), handler)


@contextmanager
def serving(cloud: str, state: State) -> Iterator[str]:
    """Run a cloud's server in a thread, and yield its address."""
    with _server(cloud, state, "127.0.0.1", 0) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


if __name__ == "__main__":
    cloud, port, file = sys.argv[1:]
    _server(cloud, State(is_told=Path(file).exists), "", int(port)).serve_forever()

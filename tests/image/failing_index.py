"""Installs from an index that fails in many ways. This program runs in a container.

It prints a JSON object: case -> [exit code, message].
"""

import base64
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import mkdtemp
from threading import Event, Thread

from entrypoint.log import Log
from entrypoint.packages.install import install
from entrypoint.packages.requirements import Requirements

WHEELS = Path(sys.argv[1])
WHEEL = "tiny-1.0-py3-none-any.whl"
LOGIN = "Basic " + base64.b64encode(b"me:hunter2").decode()
NOBODY = "127.0.0.1:9"
TIRED = Event()


class Index(BaseHTTPRequestHandler):
    """Answers with the status at the beginning of the path. 200 serves a wheel."""

    def do_CONNECT(self) -> None:
        """Refuse to act as a proxy without a login."""
        self.send_error(407)

    def do_GET(self) -> None:
        """Answer as the first part of the path says."""
        kind, _, rest = self.path.lstrip("/").partition("/")
        if kind == "silent":
            TIRED.wait()
        elif kind == "cut":
            self.answer(f'<a href="/half/{WHEEL}">{WHEEL}</a>'.encode())
        elif kind == "half":
            self.answer(b"PK", length=100_000)
        elif kind == "busy":
            self.answer(f'<a href="/503/{WHEEL}">{WHEEL}</a>'.encode())
        elif kind == "source":
            self.answer(b'<a href="/200/tiny-1.0.tar.gz">tiny-1.0.tar.gz</a>')
        elif kind != "200":
            self.send_error(int(kind))
        elif self.headers.get("Authorization") != LOGIN:
            self.send_error(401)
        elif rest == WHEEL:
            self.answer((WHEELS / WHEEL).read_bytes())
        else:
            self.answer(f'<a href="/200/{WHEEL}">{WHEEL}</a>'.encode())

    def answer(self, body: bytes, length: int | None = None) -> None:
        """Send a page. With `length`, the header promises more than is sent."""
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(length or len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing: stderr is for the tested output."""


def case(name: str, requirement: str, **variables: str) -> tuple[int, str]:
    """Install into a new folder; add files that contain the secret to the message."""
    folder = Path(mkdtemp(prefix=f"{name}-"))
    (folder / "requirements.txt").write_text(f"{requirement}\n")
    requirements = Requirements(folder / "requirements.txt", folder / "data/digest")
    patience = {"PIP_RETRIES": "1", "PIP_TIMEOUT": "30", "PIP_RESUME_RETRIES": "0"}
    code, message = install(requirements, patience | variables, Log(name))
    files = [path for path in folder.glob("data/**/*") if path.is_file()]
    leaks = [path for path in files if b"hunter2" in path.read_bytes()]
    return code, message + "".join(f"\nhunter2 is in {path}" for path in leaks)


def main() -> None:
    """Serve the index, run the cases a few at a time, and print their outcomes."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Index)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    host = f"127.0.0.1:{server.server_port}"
    local = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(WHEELS)}
    far = {"PIP_INDEX_URL": "https://index.example/simple"}

    def index(kind: str, at: str = host) -> dict[str, str]:
        return {"PIP_INDEX_URL": f"http://me:hunter2@{at}/{kind}/simple"}

    cases: dict[str, tuple[str, dict[str, str]]] = {
        "installed": ("tiny", index("200")),
        "refused": ("tiny", index("200", NOBODY)),
        "silent": ("tiny", index("silent") | {"PIP_TIMEOUT": "2"}),
        "cut": ("tiny", index("cut")),
        "busy": ("tiny", index("busy")),
        "503": ("tiny", index("503")),
        "504": ("tiny", index("504")),
        "429": ("tiny", index("429")),
        "proxy-refused": ("tiny", far | {"PIP_PROXY": f"http://me:hunter2@{NOBODY}"}),
        "file-refused": (f"-r http://me:hunter2@{NOBODY}/more.txt?sig=hunter2", {}),
        "proxy-407": ("tiny", far | {"HTTPS_PROXY": f"http://me:hunter2@{host}"}),
        "proxy-wrong": ("tiny", far | {"PIP_PROXY": "http://me:hunter2@bad host:99999"}),
        "404": ("tiny", index("404")),
        "403": ("tiny", index("403")),
        "401": ("tiny", index("401")),
        "source": ("tiny", index("source")),
        "no-scheme": ("tiny", {"PIP_INDEX_URL": "me:hunter2@nowhere"}),
        "no-port": ("tiny", {"PIP_INDEX_URL": "http://me:hunter2@:99999/"}),
        "conflict": ("wants", local),
        "no-version": ("tiny==9", local),
        "no-git": ("tiny @ git+https://me:hunter2@127.0.0.1/tiny.git", local),
        "invalid": ("tiny @ http://me:hunter2@127.0.0.1 what", local),
        "setting": ("tiny", local | {"PIP_TIMEOUT": "abc"}),
        "switch": ("tiny", local | {"PIP_PRE": "perhaps"}),
    }
    with ThreadPoolExecutor(4) as pool:
        results = {
            name: pool.submit(case, name, requirement, **variables)
            for name, (requirement, variables) in cases.items()
        }
    TIRED.set()
    print(json.dumps({name: result.result() for name, result in results.items()}))


main()

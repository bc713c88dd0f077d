"""A client of a cloud's metadata server: short requests without proxies or redirects."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

LONGEST_BYTES = 1_000_000
REQUEST_SECONDS = 5.0


class MetadataError(Exception):
    """The server does not answer, or not as the cloud's does; the message is the reason."""


@dataclass(frozen=True)
class Reply:
    """A server's reply."""

    status: int
    text: str
    headers: Mapping[str, str]
    """By their names in lower case."""


@dataclass(frozen=True)
class MetadataServer:
    """The server at an address such as http://169.254.169.254."""

    url: str

    def ask(
        self,
        path: str,
        headers: Mapping[str, str],
        *,
        method: str = "GET",
        seconds: float = REQUEST_SECONDS,
    ) -> Reply:
        """Return the reply to one request. Raises MetadataError."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=seconds)
        try:
            connection.request(method, path, headers=dict(headers))
            response = connection.getresponse()
            text = response.read(LONGEST_BYTES).decode(errors="replace")
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise MetadataError(_reason(error)) from None
        finally:
            connection.close()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, text, found)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return getattr(error, "strerror", None) or repr(error)

"""The host's certificates and pip configuration, which a build may use, stay out of the image."""

import os
from pathlib import Path

import pytest

FIND_CONFIGURATION = (
    "find / -xdev -name pip.conf -o -name pip.ini -o -name uv.toml -o -name .netrc -o -name .pypirc"
)
HOST_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
HOST_SETTINGS = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "HTTPS_PROXY", "https_proxy")
# The certificates of the base image and of Python packages are the same everywhere.
PUBLIC_CERTIFICATES = (
    "/usr/share/ca-certificates/mozilla/*.crt $(python -m certifi) "
    "/opt/venv/lib/python3*/site-packages/grpc/_cython/_credentials/roots.pem"
)
FIND_LINES = (
    "find / -xdev -type f -size -3M ! -path /lines -print0 | xargs -0 grep -aHFxf /lines || true"
)


def host_certificates() -> list[str]:
    """Return one distinctive line of each certificate in the host's bundle."""
    blocks = HOST_BUNDLE.read_text().split("-----BEGIN CERTIFICATE-----\n")[1:]
    return [block.splitlines()[1] for block in blocks]


def test_no_configuration_of_an_installer(run_bash):
    # The probe shows that the search works.
    search = f"touch /opt/uv.toml; {FIND_CONFIGURATION}"
    assert run_bash(search, user="0:0").split() == ["/opt/uv.toml"]


def test_no_secret_mount_point_is_left(run_bash):
    places = "/run/secrets /kaniko /root/.cache /srv /mnt /media /tmp /var/tmp"
    # The status file of this start is not part of the image.
    ours = "-path '/tmp/cluster-trainer-*.status*'"
    found = f"find {places} -mindepth 1 ! {ours} 2>/dev/null"
    # The probe shows that the search works.
    script = f"touch /srv/probe; {found}; ls -d /run/secrets /kaniko 2>/dev/null"
    assert run_bash(script, user="0:0").split() == ["/srv/probe"]


def test_environment_names_no_certificates_or_index(workbench):
    config = workbench.inspect_image().attrs["Config"]["Env"]
    spies = ("PIP_", "UV_", "SSL_CERT", "REQUESTS_CA", "CURL_CA", "HTTP_PROXY", "HTTPS_PROXY")
    assert not [line for line in config if line.upper().startswith(spies)]


def test_history_names_no_index_and_no_path_of_this_host(workbench):
    history = " ".join(layer["CreatedBy"] for layer in workbench.inspect_image().history())
    assert "pip" in history
    given = {name: os.environ.get(name) for name in HOST_SETTINGS}
    assert not [name for name, value in given.items() if value and value in history]
    assert str(Path(__file__).parents[2]) not in history


@pytest.mark.skipif(not HOST_BUNDLE.exists(), reason="this host has no certificate bundle")
def test_no_file_holds_a_certificate_that_only_this_host_has(run_bash, tmp_path):
    public = run_bash(f"cat {PUBLIC_CERTIFICATES}")
    private = [line for line in host_certificates() if line not in public]
    # The probe is in every image. It shows that the search works.
    probe = public.splitlines()[1]
    (tmp_path / "lines").write_text("\n".join([probe, *private]) + "\n")
    found = run_bash(FIND_LINES, user="0:0", volumes=[f"{tmp_path}/lines:/lines:ro"])
    assert {line.rpartition(":")[2] for line in found.split()} == {probe}

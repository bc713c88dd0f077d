"""Whether anyone on the internet may reach the workers' ports."""

from __future__ import annotations

from entrypoint.cluster.spec import ClusterSpec
from entrypoint.errors import listed

SEE = "docs/how-to/firewall.md"


def public_warning(spec: ClusterSpec) -> str | None:
    """Return what to say where the list has public IP addresses; names are not looked up."""
    public = [str(address) for address in spec.addresses if address.is_public]
    if not public:
        return None
    what = "address" if len(public) == 1 else "addresses"
    return (
        f"public {what} {listed(public)}: anyone who reaches TensorFlow's port can run code "
        "through it, with or without CLUSTER_TOKEN; use a private network, or a firewall that "
        f"lets only the workers in ({SEE})"
    )

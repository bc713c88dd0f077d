"""Both packages find out whether a container is in a pod."""

import pytest

import cluster_trainer.pod
import entrypoint.pod

# The kubelet's first lines: a pod with its own network, and one with the node's.
OF_PODS = ("# Kubernetes-managed hosts file.", "# Kubernetes-managed hosts file (host network).")

either_package = pytest.mark.parametrize("package", [entrypoint.pod, cluster_trainer.pod])


@either_package
@pytest.mark.parametrize("line", OF_PODS)
def test_the_kubelets_hosts_file_shows_a_pod(package, line, tmp_path, monkeypatch):
    monkeypatch.setattr(package, "HOSTS", tmp_path / "hosts")
    (tmp_path / "hosts").write_text(f"{line}\n127.0.0.1\tlocalhost\n")
    assert package.is_in_pod()


@either_package
@pytest.mark.parametrize("content", [None, "", "127.0.0.1\tlocalhost\n# Kubernetes-managed\n"])
def test_any_other_hosts_file_does_not(package, content, tmp_path, monkeypatch):
    monkeypatch.setattr(package, "HOSTS", tmp_path / "hosts")
    if content is not None:
        (tmp_path / "hosts").write_text(content)
    assert not package.is_in_pod()

"""Ports for workers that tests start on this machine."""

from harness.ports import free_ports


def test_a_port_on_which_nothing_listens_yet_is_not_given_again():
    ports = [*free_ports(300), *free_ports(100)]
    assert len(set(ports)) == len(ports)

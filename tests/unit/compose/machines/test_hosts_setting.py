"""HOSTS: the syntax of a line and of a file of machines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_cluster.messages import EndError
from machines import hosts_setting
from machines.hosts_setting import Host

pytestmark = pytest.mark.hypothesis

NAMES = st.from_regex(r"[a-z][a-z0-9.-]{0,10}", fullmatch=True)
PORTS = st.integers(1, 65535).map(str)
FOLDERS = st.from_regex(r"/[a-z ''\"#$=/]{0,12}", fullmatch=True)


@st.composite
def hosts(draw):
    user = draw(st.sampled_from(["", "ana@", "a_b.c-d@"]))
    port = draw(st.sampled_from(["", ":22", ":65535"]))
    target = f"{user}{draw(st.one_of(NAMES, st.sampled_from(['10.0.0.1', '[::1]'])))}{port}"
    return Host(
        target,
        gpus=draw(st.sampled_from(["", "all", "0", "0,1,15"])),
        data=draw(st.one_of(st.just(""), FOLDERS)),
        dir=draw(st.one_of(st.just(""), FOLDERS)),
        address=draw(st.one_of(st.just(""), NAMES, st.just("[fe80::1]"))),
        port=draw(PORTS),
    )


def refusals(*lines):
    with pytest.raises(EndError) as caught:
        hosts_setting.parse(lines)
    assert caught.value.code == 78
    return caught.value.sentences


@given(st.lists(hosts(), min_size=1, max_size=5, unique_by=lambda one: (one.target, one.address)))
def test_what_is_written_out_reads_the_same(many):
    different = [Host(**{**vars(one), "port": str(2000 + at)}) for at, one in enumerate(many)]
    distinct = {one.target: one for one in different}.values()  # no two share a GPU
    text = "\n".join(one.text for one in distinct)
    assert hosts_setting.read(text) == [*distinct]
    assert hosts_setting.parse(text.splitlines()) == [*distinct]


@given(st.text(max_size=40))
def test_any_text_is_hosts_or_is_refused(text):
    try:
        found = hosts_setting.parse([text])
    except EndError as error:
        assert all(sentence.startswith("HOSTS: ") for sentence in error.sentences)  # noqa: PT017
    else:
        assert found


@pytest.mark.parametrize(
    ("target", "ssh"),
    [
        ("ana@10.0.0.1", ("ana@10.0.0.1",)),
        ("ana@10.0.0.1:2200", ("-p", "2200", "ana@10.0.0.1")),
        ("gpu-1", ("gpu-1",)),
        ("[::1]:22", ("-p", "22", "::1")),
    ],
)
def test_what_ssh_is_given(target, ssh):
    assert Host(target).ssh == ssh


@pytest.mark.parametrize(
    ("line", "data"),
    [
        ("m1 data=/sets#1 m2", "/sets#1"),
        ("m1 data='/sets #1' m2", "/sets #1"),
        ("m1 data=/sets m2 # ana's, and m3", "/sets"),
        ("m1 data='/a # b' m2 #", "/a # b"),
    ],
)
def test_a_comment_begins_with_a_word_outside_of_quotes(line, data):
    first, second = hosts_setting.parse([line])
    assert (first.data, second.target) == (data, "m2")


def test_a_file_has_a_machine_a_line_and_comments(tmp_path):
    file = tmp_path / "hosts.txt"
    file.write_text("# ours\nana@m1 gpus=0,1 port=2300\n\nana@m2 data='/mnt/my sets'  # slow\n")
    expected = [Host("ana@m1", gpus="0,1", port="2300"), Host("ana@m2", data="/mnt/my sets")]
    assert hosts_setting.read(str(file)) == expected


@pytest.mark.parametrize("name", ["my hosts", "my hosts.txt", "hôtes.txt", "~/hosts.txt"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_file_may_have_any_name(tmp_path, monkeypatch, name, encoding):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / name.removeprefix("~/")).write_text("ana@m1\r\nana@m2\r\n", encoding)
    assert hosts_setting.read(name) == [Host("ana@m1"), Host("ana@m2")]


def test_many_machines_on_one_line_are_no_path():
    assert len(hosts_setting.read(" ".join(f"ana@machine-{i}" for i in range(500)))) == 500


def test_a_file_that_is_not_there_is_said():
    with pytest.raises(EndError) as caught:
        hosts_setting.read("no/such/file")
    assert "no/such/file" in caught.value.sentences[0]


@pytest.mark.parametrize(
    "line", ["-oProxyCommand=x", "a@b@c", "a;b", "$(x)", "a:0", "a:70000", "a b=1", "a port=0"]
)
def test_what_is_no_machine_is_refused(line):
    assert refusals(line)


def test_all_mistakes_are_told_at_once():
    assert len(refusals("a port=x gpus=y", "b dir=relative", "'")) == 4


def test_no_machine_at_all():
    assert len(refusals("# nothing")) == 1


@pytest.mark.parametrize(
    "line",
    [
        "a a",
        "a gpus=0 a gpus=0,1 port=9",
        "a gpus=all a gpus=0 port=9",
        "a gpus=1 a gpus=all port=9",
        "a port=3 port=4",
    ],
)
def test_two_workers_share_neither_port_nor_gpu(line):
    assert len(refusals(line)) == 1


@pytest.mark.parametrize("line", ["ana@fd00::1", "a address=fd00::1"])
def test_an_ipv6_address_needs_brackets_and_the_refusal_shows_them(line):
    (sentence,) = refusals(line)
    assert "[fd00::1]" in sentence


def test_two_workers_of_one_machine():
    assert len(hosts_setting.parse(["a gpus=0", "a gpus=1 port=2223"])) == 2

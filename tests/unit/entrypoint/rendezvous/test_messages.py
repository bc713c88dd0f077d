"""Any bytes of a stranger are read as a message or raise PeerError, and no other error."""

from __future__ import annotations

import contextlib
from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoint.cluster.spec import Task
from entrypoint.errors import Problem, escaped
from entrypoint.rendezvous.facts import Card, Facts
from entrypoint.rendezvous.transport import messages
from entrypoint.rendezvous.transport.messages import (
    LONGEST_LINE,
    Message,
    MessageError,
    decode,
    encode,
)
from entrypoint.rendezvous.transport.reasons import PeerError
from entrypoint.rendezvous.transport.signing import Signer, greeting, new_nonce, read_greeting

TEXT = st.text(st.characters(), max_size=50)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 10**17) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)
FIELDS = st.dictionaries(TEXT.filter(lambda name: name != "kind"), JSON, max_size=8)
FACTS = st.builds(
    Facts,
    hosts=st.lists(TEXT, max_size=5).map(tuple),
    image=st.text(max_size=300),
    tensorflow=TEXT,
    gpus_per_worker=TEXT,
    settings=st.dictionaries(TEXT, st.text(max_size=300), max_size=5),
)


WHOLE = Card.of(
    Facts(hosts=(), image="0.1.0", tensorflow="", gpus_per_worker="", settings={}),
    Task("worker", 1),
    "b",
    is_chief=False,
)
FIELDS_OF_CARD = WHOLE.message("card").fields


def pair(token: str | None, other: str | None) -> tuple[Signer, Signer]:
    """Return the signers of a dialer and a listener."""
    nonces = {"dialer": "d", "listener": "l"}
    return Signer(token, **nonces, is_dialer=True), Signer(other, **nonces, is_dialer=False)


@given(st.sampled_from(messages.KINDS), FIELDS)
def test_a_message_survives_its_way(kind, fields):
    message = Message(kind, fields)
    assert decode(encode(message)) == message
    assert b"\n" not in encode(message)


@given(st.binary() | FIELDS.map(lambda fields: encode(Message("card", fields))[1:]))
def test_anything_else_is_no_message(payload):
    with contextlib.suppress(MessageError):
        assert isinstance(decode(payload), Message)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"{}",
        b'{"kind":1}',
        b'{"kind":"x"}',
        b'{"kind":["go"]}',
        b'{"kind":"go","kind":"go"}',
        b'{"kind":"go","x":NaN}',
        b'{"kind":"go","x":1' + b"0" * 5000 + b"}",
        b'{"kind":' * 1000,
        b"[" * 60_000,
        b'{"kind":"\xff"}',
    ],
)
def test_refuses(payload):
    with pytest.raises(MessageError):
        decode(payload)


@given(FACTS, st.booleans())
def test_a_card_survives_its_way(facts, is_chief):
    card = Card.of(facts, Task("worker", 1), "boot", is_chief=is_chief)
    line = encode(card.message("card"))
    assert len(line) < LONGEST_LINE
    assert Card.read(decode(line)) == card


def test_a_card_of_an_earlier_image_is_read_so_that_it_hears_of_the_difference():
    fields = dict(FIELDS_OF_CARD)
    for later in ("generation", "ring_size", "devices", "min_workers", "workspace", "asks"):
        del fields[later]
    assert Card.read(Message("card", fields)).image == "0.1.0"


@given(st.dictionaries(st.sampled_from([*FIELDS_OF_CARD]), JSON, min_size=1, max_size=3))
def test_a_card_with_other_values_is_read_or_refused(changed):
    with contextlib.suppress(MessageError):
        assert isinstance(Card.read(Message("card", {**FIELDS_OF_CARD, **changed})), Card)


@pytest.mark.parametrize("name", FIELDS_OF_CARD)
@pytest.mark.parametrize("value", [None, [], {"": []}, 1.5, "\n"])
def test_no_field_of_a_card_takes_what_no_worker_sends(name, value):
    with pytest.raises(MessageError):
        Card.read(Message("card", {**FIELDS_OF_CARD, name: value}))


def test_a_card_of_very_many_settings_fits_into_a_message():
    settings = {f"TRAINER_{index}": "\N{SNOWMAN}" * 999 for index in range(999)}
    facts = Facts(hosts=(), image="", tensorflow="", gpus_per_worker="", settings=settings)
    line = encode(Card.of(facts, Task("worker", 1), "b", is_chief=False).message("card"))
    assert len(line) < LONGEST_LINE


def test_values_that_differ_behind_what_is_shown_still_differ():
    cards = [
        Card.of(
            Facts(hosts=(), image="x" * 500 + end, tensorflow="", gpus_per_worker="", settings={}),
            Task("worker", 1),
            "b",
            is_chief=False,
        )
        for end in "ab"
    ]
    assert cards[0].image != cards[1].image


@given(st.lists(st.builds(Problem, TEXT, TEXT, TEXT, TEXT), min_size=1, max_size=60))
def test_problems_survive_their_way(problems):
    message = decode(encode(messages.contradiction(problems)))
    assert messages.read_contradiction(message) == messages.fitting(problems)
    shown = [Problem(*map(escaped, astuple(problem))) for problem in problems]
    assert messages.fitting(problems) == tuple(shown[: messages.MOST_SHOWN])


def test_no_more_problems_are_sent_than_are_shown():
    problems = [Problem(str(number), "", "", "") for number in range(999)]
    message = decode(encode(messages.contradiction(problems)))
    assert messages.read_contradiction(message) == tuple(problems[: messages.MOST_SHOWN])


def test_as_many_problems_are_sent_as_fit():
    problems = [Problem(*["\N{SNOWMAN}" * 9999] * 4)] * 100
    line = encode(messages.contradiction(problems))
    assert 1 < len(line) < LONGEST_LINE
    assert len(messages.read_contradiction(decode(line))) > 1


@pytest.mark.parametrize(
    "fields",
    [
        {"n": -1},
        {"n": True},
        {"n": 10**9 + 1},
        {"t": "x" * (messages.LONGEST_TEXT + 1)},
        {"t": "\x1b"},
        {"l": ["\n"]},
        {"m": {"\x7f": ""}},
        {"m": {"": "\ud800"}},
        {},
    ],
    ids=ascii,
)
def test_refuses_a_field_that_a_line_cannot_show(fields):
    message = Message("card", fields)
    for read, name in (
        (message.number, "n"),
        (message.text, "t"),
        (message.texts, "l"),
        (message.mapping, "m"),
    ):
        with pytest.raises(MessageError):
            read(name)


@given(JSON)
def test_anything_else_is_no_list_of_problems(rows):
    with contextlib.suppress(MessageError):
        messages.read_contradiction(Message("contradiction", {"problems": rows}))


@given(st.binary())
def test_a_greeting_is_read_or_refused(line):
    with contextlib.suppress(PeerError):
        read_greeting(line)
    with contextlib.suppress(PeerError):
        read_greeting(b"cluster-trainer-gate " + line)
    nonce = new_nonce()
    assert read_greeting(greeting(nonce).rstrip()) == nonce


@given(st.lists(st.binary().filter(lambda payload: b"\n" not in payload), max_size=5))
@pytest.mark.parametrize("token", [None, "secret"])
def test_signed_lines_are_verified_in_order(token, payloads):
    dialer, listener = pair(token, token)
    lines = [dialer.sign(payload) for payload in payloads]
    assert [listener.verify(line.removesuffix(b"\n")) for line in lines] == payloads


@given(st.binary())
@pytest.mark.parametrize("token", [None, "secret"])
def test_anything_else_is_not_verified(token, line):
    with contextlib.suppress(PeerError):
        pair(token, token)[1].verify(line)


@pytest.mark.parametrize(("token", "other"), [("a", "b"), ("a", None), (None, "b")])
def test_another_token_is_noticed(token, other):
    dialer, listener = pair(token, other)
    with pytest.raises(PeerError, match="another CLUSTER_TOKEN, or none"):
        listener.verify(dialer.sign(b"{}").rstrip())


def test_a_line_counts_once_in_one_direction_and_on_one_connection():
    dialer, listener = pair("a", "a")
    line = dialer.sign(b"{}").rstrip()
    listener.verify(line)
    again = Signer("a", dialer="d", listener="other", is_dialer=False)
    for receiver in (listener, dialer, again):
        with pytest.raises(PeerError):
            receiver.verify(line)

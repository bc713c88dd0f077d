"""The file .env is read as Compose reads it, or refused."""

import pytest

from local_cluster.messages import EndError
from local_cluster.settings import dotenv


@pytest.fixture
def read(tmp_path):
    def of(text, **environ):
        (tmp_path / ".env").write_text(text)
        return dotenv.over(tmp_path / ".env", environ)

    return of


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("IMAGE=a:b", "a:b"),
        ("  IMAGE = a:b  ", "a:b"),
        ("export IMAGE=a:b", "a:b"),
        ("IMAGE=a:b # mine", "a:b"),
        ("IMAGE=a#b", "a#b"),
        ("IMAGE=", ""),
        ("IMAGE='a $b \\ \"c\"'", 'a $b \\ "c"'),
        ('IMAGE="a b" # mine', "a b"),
        ("IMAGE=it's", "it's"),
        ("IMAGE=a:b\r", "a:b"),
    ],
)
def test_values(read, line, text):
    assert read(f"# first\n\n{line}\nOTHER=x\n") == {"IMAGE": text}


@pytest.mark.parametrize("value", ["$HOME", "a${B}", '"a $b"', '"a\\nb"', '"no end', "'no end"])
def test_a_value_that_compose_reads_in_its_own_way_is_refused_with_its_line(read, value):
    with pytest.raises(EndError) as caught:
        read(f"OTHER={value}\nIMAGE={value}\n")
    assert caught.value.code == 78
    assert "line 2: IMAGE" in caught.value.sentences[0]


@pytest.mark.parametrize("line", ["IMAGE: a", "IMAGE :a", "export WORKERS: 3", "TRAINER_SEED:"])
def test_a_colon_in_the_place_of_the_equals_sign_is_refused_with_its_line(read, line):
    with pytest.raises(EndError) as caught:
        read(f"OTHER: x\n{line}\n")
    assert caught.value.code == 78
    assert "line 2: " in caught.value.sentences[0]


def test_a_byte_order_mark_is_refused_because_make_would_not_see_the_first_line(tmp_path):
    file = tmp_path / ".env"
    file.write_text("WORKERS=3\n", encoding="utf-8-sig")
    with pytest.raises(EndError, match="BOM"):
        dotenv.read(file)
    assert dotenv.read(file, strict=False) == {"WORKERS": "3"}


def test_what_is_set_wins_even_if_it_is_empty(read):
    assert read("IMAGE=a\nWORKERS=3\n", IMAGE="") == {"IMAGE": "", "WORKERS": "3"}


def test_misspelt_settings_are_seen(read):
    assert read("TRAINER_EPOCH=3\n") == {"TRAINER_EPOCH": "3"}


def test_no_file_says_nothing(tmp_path):
    assert dotenv.over(tmp_path / ".env", {"A": "b"}) == {"A": "b"}


def test_a_folder_is_meant_from_where_the_file_is(read, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    found = read("RUNS_DIR=./r\nDATA_DIR=~/sets\nWORKSPACE_DIR=/code\n")
    assert found["RUNS_DIR"] == f"{tmp_path}/./r"
    assert found["DATA_DIR"] == "/home/me/sets"
    assert found["WORKSPACE_DIR"] == "/code"


@pytest.mark.parametrize("name", ["hosts.txt", "my hosts.txt"])
def test_a_file_of_hosts_is_meant_from_where_the_file_is(read, tmp_path, monkeypatch, name):
    (tmp_path / name).touch()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert read(f"HOSTS={name}") == {"HOSTS": str(tmp_path / name)}
    assert read("HOSTS='ana@m1 ana@m2'") == {"HOSTS": "ana@m1 ana@m2"}


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    (tmp_path / ".env").mkdir()
    with pytest.raises(EndError, match="Is a directory"):
        dotenv.read(tmp_path / ".env")


def test_what_only_stops_takes_what_it_understands(tmp_path):
    file = tmp_path / ".env"
    assert dotenv.read(file, strict=False) == {}
    file.write_text("IMAGE=$X\nCOMPOSE_PROJECT_NAME=mine\n")
    assert dotenv.read(file, strict=False) == {"COMPOSE_PROJECT_NAME": "mine"}
    file.unlink()
    file.mkdir()
    assert dotenv.read(file, strict=False) == {}

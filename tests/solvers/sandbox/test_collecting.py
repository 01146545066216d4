"""What an agent leaves in its work folder is collected as plain files, and nothing that it left is trusted."""

from __future__ import annotations

import os
import socket
import threading

import pytest

from opsassay.solvers.sandbox.collect import MOST_DEPTH, copy_in, copy_out, first_odd

MOST_BYTES = 2**20


@pytest.fixture
def collected(tmp_path):
    """Return a function that collects ``tmp_path / "left"``, and gives the collected folder and what stayed behind."""
    left, work = tmp_path / "left", tmp_path / "work"
    left.mkdir()
    work.mkdir()
    (tmp_path / "truth").write_text("root")

    def collect():
        descriptor = os.open(left, os.O_RDONLY | os.O_DIRECTORY)
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        try:
            told = copy_out(descriptor, work, MOST_BYTES)
        finally:
            assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
            os.close(descriptor)
        return work, told

    return left, collect


def test_files_and_folders_come_back_as_they_were(collected):
    left, collect = collected
    (left / "deep/er").mkdir(parents=True)
    (left / "deep/er/answer.json").write_bytes(b"\0{}")
    (left / "run.sh").write_text("#!")
    (left / "run.sh").chmod(0o755)
    work, told = collect()
    assert told == []
    assert (work / "deep/er/answer.json").read_bytes() == b"\0{}"
    assert (work / "run.sh").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("target", ["../truth", "/etc/passwd", "answer.json", ".", "/proc/self/environ"])
def test_a_symbolic_link_is_not_followed(collected, target):
    left, collect = collected
    (left / "answer.json").symlink_to(target)
    work, told = collect()
    assert told == ["answer.json: a symbolic link"]
    assert list(work.iterdir()) == []


def test_a_link_to_a_folder_is_not_entered(collected, tmp_path):
    left, collect = collected
    (left / "folder").symlink_to(tmp_path)
    work, told = collect()
    assert (told, list(work.iterdir())) == (["folder: a symbolic link"], [])


def test_a_fifo_is_not_waited_for(collected):
    left, collect = collected
    os.mkfifo(left / "answer.json")
    work, told = collect()
    assert (told, list(work.iterdir())) == (["answer.json: a FIFO"], [])


def test_a_socket_stays(collected):
    left, collect = collected
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(left / "s"))
        _, told = collect()
    assert told == ["s: a socket"]


def test_a_device_is_not_opened(collected):
    left, collect = collected
    try:
        os.mknod(left / "answer.json", 0o20666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only root makes devices")
    work, told = collect()
    assert (told, list(work.iterdir())) == (["answer.json: a character device"], [])


def test_a_folder_in_place_of_the_answer_is_a_folder(collected):
    left, collect = collected
    (left / "answer.json").mkdir()
    work, told = collect()
    assert (told, (work / "answer.json").is_dir()) == ([], True)


def test_what_is_huge_stays_and_the_rest_comes(collected):
    left, collect = collected
    with (left / "a-huge").open("wb") as file:
        file.truncate(2**40)
    (left / "b").write_bytes(bytes(MOST_BYTES - 1))
    (left / "c").write_bytes(bytes(2))
    (left / "d").write_bytes(bytes(1))
    work, told = collect()
    assert told == [f"a-huge: {2**40} bytes, more than may be collected", "c: 2 bytes, more than may be collected"]
    assert sorted(path.name for path in work.iterdir()) == ["b", "d"]


def test_depth_and_number_are_bounded(collected, monkeypatch):
    monkeypatch.setattr("opsassay.solvers.sandbox.collect.MOST_FILES", 200)
    left, collect = collected
    (left / ("d/" * (MOST_DEPTH + 40))).mkdir(parents=True)
    work, told = collect()
    assert told == [f"{'/'.join('d' * (MOST_DEPTH + 1))}: more than {MOST_DEPTH} folders deep"]
    for number in range(210):
        (left / f"f{number}").touch()
    _, told = collect()
    assert any("more than 200 files" in line for line in told)
    assert len(list(work.iterdir())) <= 200


def test_what_is_already_there_is_replaced_and_not_written_through(collected, tmp_path):
    left, collect = collected
    (left / "answer.json").write_text("new")
    (tmp_path / "work/answer.json").symlink_to(tmp_path / "truth")
    work, told = collect()
    assert (told, (work / "answer.json").read_text(), (tmp_path / "truth").read_text()) == ([], "new", "root")


def test_a_name_that_is_no_text_is_a_name(collected):
    left, collect = collected
    os.close(os.open(os.fsencode(left) + b"/\xff\n", os.O_CREAT | os.O_WRONLY))
    work, told = collect()
    assert (told, [os.fsencode(path.name) for path in work.iterdir()]) == ([], [b"\xff\n"])


def test_links_are_not_taken_in_either(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "in").mkdir(parents=True)
    target.mkdir()
    (source / "in/file").write_text("x")
    assert first_odd(source) is None
    (source / "in/link").symlink_to("/etc/passwd")
    assert first_odd(source) == str(source / "in/link")
    copy_in(source, target, time_s=0)
    assert [path.relative_to(target).as_posix() for path in target.rglob("*")] == ["in", "in/file"]
    assert (target / "in/file").stat().st_mtime == 0


def test_what_the_agent_left_is_told(sealed, tmp_path):
    outside = tmp_path / "truth"
    outside.write_text("root")
    ended = sealed(
        f"import os; os.mkfifo('pipe'); os.symlink({str(outside)!r}, 'answer.json'); os.mkdir('closed', 0); open('ok', 'w')"
    )
    assert ended.left_behind[:2] == ("answer.json: a symbolic link", "pipe: a FIFO")
    assert sorted(path.name for path in (tmp_path / "work").iterdir()) == ["closed", "ok"]


def test_collecting_while_nobody_reads_ends(collected):
    """A guard for the guards: the whole of it, on a folder with one of each, takes no time."""
    left, collect = collected
    os.mkfifo(left / "pipe")
    (left / "loop").symlink_to("loop")
    done = threading.Thread(target=collect, daemon=True)
    done.start()
    done.join(20)
    assert not done.is_alive()

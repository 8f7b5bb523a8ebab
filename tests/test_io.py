"""Files that others look at: whole or not there, and one process at a time."""

import os
import resource
import subprocess
import sys
import time

import pytest
from safetensors import SafetensorError

from foveapool import ClosedFormPooling, _io
from foveapool._io import (
    check_file_place,
    check_folder_place,
    clear_leftovers,
    hold_lock,
    read_json,
    read_toml,
    replace_file,
    write_text,
)
from foveapool.pooling import storage
from foveapool.pooling.storage import save_tensors

# The file by itself: with the package comes torch, which takes seconds.
HOLD = """
import runpy, sys, time
from pathlib import Path
held = runpy.run_path(sys.argv[1])["hold_lock"]
with held(Path(sys.argv[2])):
    print("held", flush=True)
    time.sleep(float(sys.argv[3]))
"""


def holder(path, seconds):
    """A process that holds the lock by now."""
    command = [sys.executable, "-c", HOLD, _io.__file__, str(path), str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    return process


def test_leftovers_of_one_file_are_cleared_and_no_others(tmp_path):
    for name in (".file.x1", ".file.x2", ".files.x1", "file", ".other.x1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "begun").write_text("")
    clear_leftovers(tmp_path / "file")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".files.x1", ".other.x1", "file"]
    (tmp_path / ".other.x2").write_text("of a file, as they were once")
    clear_leftovers(tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".files.x1", "file"]


def test_leftovers_of_all_files_of_a_pattern_are_cleared(tmp_path):
    for name in (".a-1.json.x1", ".a-2.json.x1", ".b-1.json.x1"):
        (tmp_path / name).mkdir()
    clear_leftovers(tmp_path / "a-*.json")
    assert [path.name for path in tmp_path.iterdir()] == [".b-1.json.x1"]


def test_what_a_killed_process_wrote_beside_its_file_is_cleared_too(tmp_path):
    """safetensors writes to a file of its own naming first."""
    path = tmp_path / "file"
    writing = "import os, runpy, sys; from pathlib import Path\n"
    writing += "with runpy.run_path(sys.argv[1])['replace_file'](Path(sys.argv[2])) as temporary:\n"
    writing += "    temporary.with_name('.tmp12345').write_text('half')\n"
    writing += "    os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", writing, _io.__file__, str(path)], check=False)
    assert len(list(tmp_path.rglob(".tmp12345"))) == 1
    clear_leftovers(path)
    assert not list(tmp_path.iterdir())


def test_a_file_is_replaced_when_it_is_complete(tmp_path):
    path = tmp_path / "file"
    write_text(path, "old")
    with replace_file(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old" and temporary.parent.parent == tmp_path
    assert path.read_text() == "new"


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_new_file_is_for_whom_the_umask_leaves_it(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        save_tensors(tmp_path / "file", "test", {}, {})
        write_text(tmp_path / "text", "new")
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [mode, mode]


@pytest.mark.parametrize("write", [write_text, lambda path, _: save_tensors(path, "test", {}, {})])
def test_a_file_that_cannot_be_written_is_named_by_its_own_name(tmp_path, write):
    (tmp_path / "there").mkdir()
    for place in ("nowhere/file", "there"):
        with pytest.raises(OSError, match=place) as caught:
            write(tmp_path / place, "text")
        assert "/." not in str(caught.value) and "None" not in str(caught.value)
    assert os.listdir(tmp_path) == ["there"]


def test_a_full_disk_is_told_by_the_name_of_the_file(tmp_path, monkeypatch):
    def full(*_, **more):
        raise SafetensorError('I/O error: no space (os error 28) at path "/x/.file.1/.tmp1"')

    monkeypatch.setattr(storage, "save_file", full)
    with pytest.raises(OSError, match=r"file: could not be written \(I/O .*28\)\)$"):
        save_tensors(tmp_path / "file", "test", {}, {})


@pytest.fixture
def nothing_can_be_written():
    """As on a full disk: files can be made, and not a byte goes into them."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("nothing_can_be_written")
def test_a_write_that_fails_names_its_file_and_leaves_nothing(tmp_path):
    with pytest.raises(OSError, match=r"File too large: '.*/file'$"):
        write_text(tmp_path / "file", "text")
    assert os.listdir(tmp_path) == []


@pytest.mark.usefixtures("nothing_can_be_written")
def test_a_lock_needs_no_room_on_the_disk(tmp_path):
    path = tmp_path / "lock"
    with hold_lock(path), pytest.raises(BlockingIOError, match="process unknown"), hold_lock(path):
        pass


def test_what_fails_half_way_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    write_text(path, "old")
    with pytest.raises(KeyboardInterrupt), replace_file(path) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_lock_is_for_one_and_names_who_has_it(tmp_path):
    path = tmp_path / "deep" / "lock"
    process = holder(path, 60)
    try:
        message = rf"deep: process {process.pid} works in this folder"
        with pytest.raises(BlockingIOError, match=message), hold_lock(path):
            pass
    finally:
        process.kill()
        process.wait()
    # It went with its process, however that ended.
    with hold_lock(path):
        assert path.read_text() == str(os.getpid())
    with hold_lock(path):
        pass


def test_who_waits_gets_the_lock_after_the_other(tmp_path):
    process = holder(tmp_path / "lock", 0.4)
    begin = time.monotonic()
    with hold_lock(tmp_path / "lock", wait=True):
        assert process.wait(timeout=10) == 0
    assert time.monotonic() - begin > 0.1


def test_a_child_process_does_not_keep_its_parents_lock(tmp_path):
    with hold_lock(tmp_path / "lock"):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        with hold_lock(tmp_path / "lock"):
            pass
    finally:
        child.kill()
        child.wait()


def test_a_place_that_cannot_be_is_refused_in_words(tmp_path):
    (tmp_path / "file").write_text("")
    check_file_place(tmp_path / "file")
    check_file_place(tmp_path / "new" / "folder" / "file")
    check_folder_place(tmp_path / "new" / "folder")
    with pytest.raises(IsADirectoryError, match="got a folder, wanted a file"):
        check_file_place(tmp_path)
    with pytest.raises(NotADirectoryError, match="got a file, wanted a folder"):
        check_folder_place(tmp_path / "file")
    for check in (check_file_place, check_folder_place):
        with pytest.raises(PermissionError, match="file is no folder that you may write to"):
            check(tmp_path / "file" / "below")


def test_a_folder_that_is_there_needs_no_leave_to_write_beside_it(tmp_path, monkeypatch):
    mine = tmp_path / "mine"
    mine.mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: path == mine)
    check_folder_place(mine)
    check_file_place(mine / "file")
    with pytest.raises(PermissionError, match="other: cannot be written"):
        check_folder_place(tmp_path / "other")


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (DEEP, "nested too deeply"),
        ('{"a": ' + "[" * 70 + "]" * 70 + "}", "nested too deeply, more than 64 levels"),
        ('{"a": 1', "is not whole"),
        ("[]", "got list, wanted an object"),
        (" " * 17_000_000, "more than 16,000,000 bytes"),
    ],
)
def test_json_is_read_within_bounds(tmp_path, text, message):
    (tmp_path / "some.json").write_text(text)
    with pytest.raises(ValueError, match=f"some.json.*{message}"):
        read_json(tmp_path / "some.json")
    (tmp_path / "some.json").write_text('{"a": ' + "[" * 60 + "]" * 60 + "}")
    assert list(read_json(tmp_path / "some.json")) == ["a"]


@pytest.mark.parametrize("text", [f"a = {DEEP}", "a" + ".a" * 70 + " = 1", "a = \x00"])
def test_toml_is_read_within_bounds(tmp_path, text):
    (tmp_path / "some.toml").write_text(text)
    with pytest.raises(ValueError, match=r"some.toml: .*, wanted a study in TOML"):
        read_toml(tmp_path / "some.toml", "a study")


def test_a_pipe_is_no_file_to_read(tmp_path):
    os.mkfifo(tmp_path / "some.json")
    with pytest.raises(ValueError, match=r"some.json is not whole .*no regular file"):
        read_json(tmp_path / "some.json")


# Windows' locks by those of POSIX, which also are of bytes and go with their process.
WITHOUT_FCNTL = """
import fcntl, os, sys, types
def locking(file, mode, count):
    kind = fcntl.LOCK_UN if mode == 0 else fcntl.LOCK_EX | fcntl.LOCK_NB
    fcntl.lockf(file, kind, count, os.lseek(file, 0, os.SEEK_CUR))
sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_UNLCK=0, LK_NBLCK=2)
sys.modules["fcntl"] = None
"""


def test_locks_hold_without_fcntl(tmp_path):
    take = "import runpy; lock = runpy.run_path(sys.argv[1])['lock_file']\n"
    take += "file = open(sys.argv[2], 'a+'); shared = sys.argv[3] == 'shared'\n"
    take += "lock(file, wait=False); lock(file, shared=shared, wait=False)\n"
    take += "print('held', flush=True); sys.stdin.read()"
    held = []

    def hold(kind, program):
        command = [sys.executable, "-c", WITHOUT_FCNTL + program, _io.__file__]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        held.append(subprocess.Popen([*command, str(tmp_path / "lock"), kind], text=True, **pipes))
        return held[-1].stdout.readline() == "held\n"

    join = take.replace("lock(file, wait=False); ", "")
    try:
        assert hold("shared", take)  # taken alone, then shared
        assert hold("shared", join)
        assert not hold("alone", join)
        assert "BlockingIOError: another process holds" in held[-1].communicate()[1]
        for process in held:
            process.kill()
            process.wait()
        assert hold("alone", join)
        assert not hold("shared", join)
    finally:
        for process in held:
            process.kill()
            process.communicate()


def test_a_fit_works_without_fcntl(tmp_path):
    program = """
import foveapool as fp
from torch import nn
from foveapool import _io
assert _io.fcntl is None
torch.manual_seed(0)
network = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.Flatten(), nn.Linear(64, 2))
batches = [(torch.randn(20, 3, 8, 8), torch.arange(20) % 2)]
fit = fp.ClosedFormPooling().fit(network, batches, layer="0", resume=sys.argv[1] + "/kept")
fit.save(sys.argv[1] + "/fit")
from foveapool.records import Row, append_rows
append_rows(sys.argv[1] + "/rows.csv", [Row("some", "error", 1.0, 0.0, 1)])
"""
    program = "import torch\n" + WITHOUT_FCNTL + program
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    assert ClosedFormPooling.load(tmp_path / "fit").operator_.components == 1

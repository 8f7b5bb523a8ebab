"""The file of known trainings: equal content is equal bytes, and nothing in it is ever lost."""

import gzip
import json
import math
import multiprocessing
import os
import signal
import time
import warnings

import pytest

from foveapool import known_trainings
from foveapool._io import hold_lock, to_canonical_json
from foveapool.known_trainings import HEADER, KnownTrainings, read_trainings
from foveapool.runs import RESULT, TRAINING, Runs, digest_facts

NUMBERS = ("error", "loss", "seconds", "fit_seconds", "parameters", "multiply_adds")
MACHINE = {"commit": "abc", "hardware": "here", "torch": "2"}
DEEP = 100_000


def example(number, **changed):
    """A training's name, facts and result."""
    facts = {"setting": {"width": 4, "pools": []}, "seed": number}
    name = f"toy-seed{number}-{digest_facts(facts)}"
    result = {**dict.fromkeys(NUMBERS, 1.5), "alphas": {}, **MACHINE, "training": name}
    return name, facts, {**result, **changed}


def line(number, **changed):
    name, facts, result = example(number, **changed)
    return to_canonical_json({"name": name, "facts": facts, "result": result})


FIRST = to_canonical_json(HEADER)


def packed(*lines, header=FIRST):
    return gzip.compress("".join(f"{each}\n" for each in (header, *lines)).encode())


def lines_in(path):
    return gzip.decompress(path.read_bytes()).decode().splitlines()


def names_in(path):
    return [json.loads(each)["name"] for each in lines_in(path)[1:]]


def filled(path, *numbers, said=None):
    known = KnownTrainings(path, (lambda text: None) if said is None else said.append)
    for number in numbers:
        known.add(*example(number))
    known.close()
    return known


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trainings.jsonl.gz"


def test_what_was_added_comes_back(path):
    filled(path, 0, 1)
    known = KnownTrainings(path)
    assert len(known) == 2
    for number in (0, 1):
        name, facts, result = example(number)
        assert known[name] == (facts, result)
    first, *others = lines_in(path)
    assert json.loads(first) == {"format": "foveapool-trainings", "version": 1}
    assert others == [line(0), line(1)]


def test_equal_content_is_equal_bytes(path, tmp_path):
    filled(path, 0, 1, 2)
    first = path.read_bytes()
    filled(tmp_path / "other.gz", 2, 0)
    filled(tmp_path / "other.gz", 1)
    assert (tmp_path / "other.gz").read_bytes() == first
    filled(path, 1, 0)
    assert path.read_bytes() == first
    # Neither a time nor a name: bytes 4 to 7, and the flag that says whether a name follows.
    assert first[4:8] == b"\0\0\0\0" and first[3] == 0
    path.write_bytes(packed(*(json.dumps(json.loads(line(n))) for n in (2, 1))))
    filled(path, 0)
    assert path.read_bytes() == first


def test_reading_writes_nothing(path, tmp_path):
    KnownTrainings(path).close()
    assert list(tmp_path.iterdir()) == []
    filled(path, 0)
    before = path.stat()
    filled(path, 0)
    assert path.stat() == before


def test_a_link_to_the_file_is_written_through(path, tmp_path):
    (tmp_path / "deep").mkdir()
    path.symlink_to(tmp_path / "deep" / "file.gz")
    filled(path, 0)
    assert path.is_symlink() and len(names_in(tmp_path / "deep" / "file.gz")) == 1


def test_the_file_is_written_at_once_and_then_at_most_every_few_seconds(path, monkeypatch):
    monkeypatch.setattr(known_trainings, "SECONDS_BETWEEN_WRITES", 0.3)
    known = KnownTrainings(path)
    known.add(*example(0))
    assert len(names_in(path)) == 1
    known.add(*example(1))
    known.add(*example(2))
    assert len(names_in(path)) == 1
    # Nothing more has to happen for it.
    end = time.monotonic() + 20
    while len(names_in(path)) < 3 and time.monotonic() < end:
        time.sleep(0.02)
    assert len(names_in(path)) == 3
    known.close()


def test_what_another_wrote_meanwhile_stays_and_is_known(path):
    one, other = KnownTrainings(path), KnownTrainings(path)
    one.add(*example(0))
    other.add(*example(1))
    one.add(*example(2))
    one.close()
    assert len(names_in(path)) == 3 and example(1)[0] in one
    # The file was taken away: what was added here is there again.
    path.unlink()
    one.add(*example(3))
    one.close()
    assert names_in(path) == sorted(example(number)[0] for number in (0, 2, 3))


def test_another_result_that_another_process_wrote_first_stays(path):
    said = []
    known = KnownTrainings(path, said.append)
    known.add(*example(0))
    known.add(*example(1))
    filled(path)
    other = KnownTrainings(path)
    other.add(*example(1, error=2.5))
    other.close()
    known.close()
    assert json.loads(lines_in(path)[2])["result"]["error"] == 2.5
    assert len([text for text in said if "another result of it" in text]) == 1
    assert known[example(1)[0]].result["error"] == 1.5


def forked(target, *given):
    """A process that needs no second to begin: torch is loaded."""
    process = multiprocessing.get_context("fork").Process(target=target, args=given, daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    return process


def add_all(path, numbers):
    known_trainings.SECONDS_BETWEEN_WRITES = 0.0
    filled(path, *numbers)


def test_processes_that_add_at_once_lose_nothing(path):
    shares = [range(0, 40), range(30, 70), range(60, 100)]
    processes = [forked(add_all, path, share) for share in shares]
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert names_in(path) == sorted(example(number)[0] for number in range(100))
    said = []
    assert len(KnownTrainings(path, said.append)) == 100 and said == []


def add_for_ever(path):
    known_trainings.SECONDS_BETWEEN_WRITES = 0.0
    known = KnownTrainings(path)
    number = 0
    while True:
        known.add(*example(number))
        number += 1


def test_killed_while_it_writes_it_leaves_a_whole_file(path, tmp_path):
    for attempt in range(6):
        before = names_in(path) if path.exists() else []
        process = forked(add_for_ever, path)
        time.sleep(0.05 + 0.03 * attempt)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        if path.exists():
            assert set(names_in(path)) >= set(before)
            assert not read_trainings(path).damage and not read_trainings(path).faults
    assert len(names_in(path)) > 1
    filled(path, 10_000)
    # What it left is gone, and no lock is held.
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == [".lock-trainings.jsonl.gz", "trainings.jsonl.gz"]


def die_half_way(path, number):
    def write(path, lines):
        with known_trainings.replace_file(path) as temporary:
            temporary.write_bytes(b"half")
            os.kill(os.getpid(), signal.SIGKILL)

    known_trainings.write_lines = write
    filled(path, number)


def test_killed_half_way_it_leaves_the_old_file(path, tmp_path):
    filled(path, 0)
    before = path.read_bytes()
    process = forked(die_half_way, path, 1)
    process.join(30)
    assert process.exitcode == -signal.SIGKILL
    assert path.read_bytes() == before and len(list(tmp_path.glob(".trainings*"))) == 1
    filled(path, 1)
    assert len(names_in(path)) == 2 and not list(tmp_path.glob(".trainings*"))


def hold(lock, seconds):
    with hold_lock(lock):
        time.sleep(seconds)


def test_a_file_that_waits_for_another_process_is_written_after_it(path):
    lock = path.with_name(f".lock-{path.name}")
    process = forked(hold, lock, 0.5)
    while not (lock.exists() and lock.read_text()):
        time.sleep(0.01)
    filled(path, 0)
    process.join(0.2)
    assert not process.is_alive() and len(names_in(path)) == 1


ENTRY = json.loads(line(1))
BAD_LINES = [
    ("{", "not JSON"),
    ("", "not JSON"),
    ("\ud800", "not JSON"),
    ("[1]", "not an object of name, facts and result"),
    (to_canonical_json({**ENTRY, "more": 1}), "not an object of name, facts and result"),
    (
        to_canonical_json({"name": ENTRY["name"], "facts": {}}),
        "not an object of name, facts and result",
    ),
    (to_canonical_json({**ENTRY, "facts": [1]}), "got name, facts or result of another kind"),
    (to_canonical_json({**ENTRY, "name": 3}), "got name, facts or result of another kind"),
    (to_canonical_json({**ENTRY, "facts": {}}), "which does not belong to its facts"),
    (to_canonical_json({**ENTRY, "name": example(2)[0]}), "which does not belong to its facts"),
    (line(1, training="other"), "result.json is not of this training"),
    (line(1, error=math.nan), "got nan for error"),
    (line(1, error=140), "got 140 for error"),
    (line(1, error=-1), "got -1 for error"),
    (to_canonical_json({**ENTRY, "name": "a\n\x1b" + ENTRY["name"]}), "a  toy-seed1"),
    (line(1, seconds=10**400), "got 1000"),
    (line(1, error="1"), "got '1' for error"),
    (line(1, alphas=None), "got None for alphas"),
    (line(1, commit=None), "got None for commit"),
    (line(0, error=9), "a second line of toy-seed0"),
    (line(0), "a second line of toy-seed0"),
    (line(1)[:-1] + "[" * DEEP, "not JSON"),
    ('{"name":"a","facts":' + "[" * DEEP + "]" * DEEP + ',"result":{}}', "nested too deeply"),
]


@pytest.mark.parametrize(("bad", "why"), BAD_LINES, ids=range(len(BAD_LINES)))
def test_a_line_that_cannot_be_used_is_said_once_and_stays(path, bad, why):
    raw = bad.encode("utf-8", "surrogatepass")
    before = gzip.decompress(packed(line(0))) + raw + b"\n" + line(3).encode() + b"\n"
    path.write_bytes(gzip.compress(before))
    said = []
    known = KnownTrainings(path, said.append)
    assert set(known) == {example(0)[0], example(3)[0]}
    assert known[example(0)[0]].result["error"] == 1.5
    (text,) = said
    assert text.startswith(f"{path}: line 3: ") and len(text.splitlines()) == 1
    assert why in text and len(text) < 600
    known.add(*example(2))
    known.close()
    after = gzip.decompress(path.read_bytes()).splitlines()
    assert sorted(after) == sorted([*before.splitlines(), line(2).encode()])
    # It comes behind the one of its name that counts, and what has no name comes last.
    assert set(KnownTrainings(path)) == {example(number)[0] for number in (0, 2, 3)}
    assert len(said) == 2 and "1 trainings added, 3 in all" in said[1]


def test_a_bad_line_does_not_keep_the_good_one_of_its_name_out(path):
    path.write_bytes(packed(line(1, error=140)))
    filled(path, 1)
    assert lines_in(path)[1:] == [line(1), line(1, error=140)]
    assert KnownTrainings(path)[example(1)[0]].result["error"] == 1.5


def whole(count=3):
    return packed(*(line(number) for number in range(count)))


def flipped(content):
    middle = len(content) - 6
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


DAMAGED = {
    "no gzip": (b"name,error\n", "is not a whole gzip file"),
    "empty": (b"", "not a file of trainings, wanted"),
    "no header": (gzip.compress(line(0).encode()), "not a file of trainings, wanted"),
    "header alone, not JSON": (packed(header="{"), "not a file of trainings"),
    "header of another kind": (packed(header="[1]"), "not a file of trainings"),
    "deep header": (packed(header="[" * DEEP), "not a file of trainings"),
    "another format": (packed(line(0), header='{"format":"x","version":1}'), "not a file of"),
    "version 2": (
        packed(line(0), header=to_canonical_json({**HEADER, "version": 2})),
        'of version 2, wanted {"format":"foveapool-trainings","version":1}',
    ),
    "version 1.0": (
        packed(line(0), header=to_canonical_json({**HEADER, "version": 1.0})),
        "of version 1.0",
    ),
    "cut in its header": (whole()[:5], "is cut off"),
    "a wrong checksum": (flipped(whole()), "is not a whole gzip file"),
    "more behind it": (whole() + b"more", "is not a whole gzip file"),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_file_that_is_none_is_said_once_and_stays(path, kind):
    content, why = DAMAGED[kind]
    path.write_bytes(content)
    said = []
    known = filled(path, 0, 1, said=said)
    text = said[0]
    assert len(said) == 1
    assert text.startswith(f"{path}: {why}") and len(text.splitlines()) == 1
    assert "nothing is written to it" in text and "0 of its trainings count" in text
    assert path.read_bytes() == content
    # What was done here counts, here.
    assert set(known) == {example(0)[0], example(1)[0]}


def test_of_a_file_that_is_cut_off_the_whole_lines_count(path):
    content = packed(*(line(number, commit=os.urandom(40).hex()) for number in range(20)))
    path.write_bytes(content[: len(content) // 2])
    said = []
    known = filled(path, 30, said=said)
    assert 3 < len(known) < 18 and example(0)[0] in known
    (text,) = said
    assert "is cut off" in text and f"{len(known) - 1} of its trainings count" in text
    assert path.read_bytes() == content[: len(content) // 2]


def test_a_file_that_was_mended_meanwhile_is_written_to(path):
    path.write_bytes(b"damaged")
    known = filled(path, 0)
    path.write_bytes(packed(line(1)))
    known.close()
    assert names_in(path) == [example(0)[0], example(1)[0]]


def test_what_is_read_is_bounded(path, monkeypatch):
    said = []
    long = '{"name":"' + "x" * known_trainings.LONGEST_LINE + '"}'
    path.write_bytes(packed(long, line(0), long, line(1), long))
    before = path.read_bytes()
    assert set(filled(path, 2, said=said)) == {example(number)[0] for number in (0, 1, 2)}
    assert len(said) == 1 and "is longer than 1000000 bytes" in said[0]
    assert path.read_bytes() == before

    monkeypatch.setattr(known_trainings, "LARGEST_FILE", 1000)
    path.write_bytes(packed(*(line(number) for number in range(50))))
    found = read_trainings(path)
    assert "holds more than 1000 bytes" in found.damage and 0 < len(found.trainings) < 50


def test_a_small_file_of_endless_bad_lines_is_not_read_to_its_end(path):
    path.write_bytes(packed(*["0"] * 1_000_000))
    begin = time.monotonic()
    said = []
    KnownTrainings(path, said.append)
    assert time.monotonic() - begin < 3
    assert "more than 1000 lines that cannot be used" in said[-1] and len(said) == 2


def test_of_many_bad_lines_the_first_are_said(path):
    path.write_bytes(packed(*map(str, range(50))))
    said = []
    filled(path, 0, said=said)
    assert len(said) == 10 + 2
    assert "more than 10 of its lines do not count" in said[10]
    assert len(lines_in(path)) == 1 + 50 + 1


def test_a_result_that_is_too_long_to_be_read_again_is_not_written(path):
    said = []
    known = KnownTrainings(path, said.append)
    known.add(*example(0, note="x" * known_trainings.LONGEST_LINE))
    known.add(*example(1))
    known.close()
    assert names_in(path) == [example(1)[0]] and "too long" in said[0]


def test_a_place_that_cannot_be_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"got no folder .*none, wanted .* make it"):
        KnownTrainings(tmp_path / "none" / "file.gz")
    with pytest.raises(IsADirectoryError, match="wanted a file of known trainings"):
        KnownTrainings(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(IsADirectoryError, match="got what is no file"):
        KnownTrainings(tmp_path / "pipe")


def test_a_file_that_cannot_be_written_is_said_once(path, monkeypatch):
    said = []
    known = KnownTrainings(path, said.append)

    def full(*given):
        raise OSError(28, "No space left on device", f"/tmp/{time.monotonic()}")

    monkeypatch.setattr(known_trainings, "write_lines", full)
    known.add(*example(0))
    known.write()
    assert len(said) == 1 and "cannot be written (No space left on device)" in said[0]
    monkeypatch.undo()
    known.close()
    assert len(names_in(path)) == 1


def test_runs_look_into_their_folder_first(path, tmp_path):
    name, facts, result = example(0)
    filled(path, 0)
    said = []
    runs = Runs(tmp_path / "runs", said.append, KnownTrainings(path))
    assert runs.result(name, facts) == result
    assert runs.result(name, {**facts, "seed": 1}) is None
    assert runs.result(example(1)[0], example(1)[1]) is None
    assert runs.result_in_folder(name, facts) is None and not runs.root.exists()
    with runs.claimed(name, facts):
        assert runs.result(name, facts) == result
        runs.finish(name, result)
    assert runs.result(name, facts) == result and said == []
    runs.finish(name, {**result, "error": 7.5})
    for _ in range(2):
        assert runs.result(name, facts)["error"] == 7.5
    (text,) = said
    assert text.startswith(f"{name}: the known trainings have another result than")
    before = path.read_bytes()
    known = KnownTrainings(path)
    known.add(name, facts, {**result, "error": 7.5})
    known.close()
    assert path.read_bytes() == before
    # A damaged folder is not asked.
    (runs.folder(name) / RESULT).write_text("{")
    assert runs.result(name, facts) == result
    (runs.folder(name) / TRAINING).unlink()
    assert runs.result(name, facts) == result

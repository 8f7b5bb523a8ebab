"""Ways to damage a file: its bytes as they are, and what its format holds, put together again.

Damage to the bytes alone seldom comes further than a checksum, or than the first parser.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

Mutation = Callable[[Random, bytes], bytes]

HUGE = [0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1]
DEEP = 100_000
SEAL = "sha256"  # by which a file says what its contents were
# What stands in a text or a header instead of what belongs there.
ODD_VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1.5, 7, 30_000, 2**31, 2**63, 10**30, 1e308, -1e-308),
    *(math.nan, math.inf, -math.inf, "", "x", "nan", "x" * 5000, "../../x", "\x00", "ä\ud7ff"),
    *([], {}, [[]], [0], [-1, -1], [30_000, 30_000], [10**12, 10**12], {"x": {}}, ["x"]),
]
ODD_WORDS = [
    *(b"nan", b"inf", b"-1", b"0", b"1e999", b"9" * 400, b"9" * 5000, b"30000", b"4294967296"),
    *(b'"', b"'", b"[", b"]", b"{", b"}", b",", b"=", b"\n", b"\r", b"\x00", b"\xff\xfe", b"\\u"),
    *(b"true", b"null", b"[[[[", b"a.a.a", b"=1+1", b"1_000", b"0x7f", b"#", b"\xef\xbb\xbf"),
]


def mutate(draw: Random, content: bytes, inside: Mutation | None) -> bytes:
    """The content with some damage; never the same as it was."""
    for _ in range(100):
        change = inside if inside is not None and draw.random() < 0.7 else mutate_bytes
        found = change(draw, content)
        if found != content:
            return found
    return content + b"\x00"


def mutate_bytes(draw: Random, content: bytes) -> bytes:
    """One change, or several, of any bytes."""
    for _ in range(draw.choice([1, 1, 1, 2, 5])):
        content = draw.choice(_OF_BYTES)(draw, content)
    return content


def _spot(draw: Random, content: bytes) -> tuple[int, int]:
    """Begin and end of some piece, near the beginning more often than not: headers are there."""
    most = len(content) if draw.random() < 0.5 else min(len(content), 200)
    begin = draw.randint(0, most)
    return begin, min(len(content), begin + draw.choice([1, 2, 4, 8, 64, 512]))


def _flip(draw: Random, content: bytes) -> bytes:
    found = bytearray(content)
    for _ in range(draw.choice([1, 1, 2, 8])):
        begin, end = _spot(draw, content)
        if begin < end:
            found[begin] ^= 1 << draw.randrange(8)
    return bytes(found)


def _fill(draw: Random, content: bytes) -> bytes:
    begin, end = _spot(draw, content)
    filling = draw.choice([b"\x00" * (end - begin), b"\xff" * (end - begin)])
    if draw.random() < 0.5:
        filling = draw.randbytes(end - begin)
    return content[:begin] + filling + content[end:]


def _put_number(draw: Random, content: bytes) -> bytes:
    begin, _ = _spot(draw, content)
    kind = draw.choice(["<B", "<H", ">H", "<I", ">I", "<Q", ">Q"])
    size = struct.calcsize(kind)
    number = struct.pack(kind, draw.choice(HUGE) % 256**size)
    return content[:begin] + number + content[begin + size :]


def _put_float(draw: Random, content: bytes) -> bytes:
    begin, _ = _spot(draw, content)
    kind = draw.choice(["<e", "<f", "<d"])
    number = struct.pack(kind, draw.choice([math.nan, math.inf, -math.inf, -1.0, 5e-8]))
    return content[:begin] + number + content[begin + len(number) :]


def _cut(draw: Random, content: bytes) -> bytes:
    return content[: draw.randint(0, len(content))]


def _drop(draw: Random, content: bytes) -> bytes:
    begin, end = _spot(draw, content)
    return content[:begin] + content[end:]


def _repeat(draw: Random, content: bytes) -> bytes:
    begin, end = _spot(draw, content)
    return content[:end] + content[begin:end] * draw.choice([1, 2, 100]) + content[end:]


def _move(draw: Random, content: bytes) -> bytes:
    (begin, end), (to, _) = _spot(draw, content), _spot(draw, content)
    rest = content[:begin] + content[end:]
    return rest[:to] + content[begin:end] + rest[to:]


def _put_word(draw: Random, content: bytes) -> bytes:
    begin, end = _spot(draw, content)
    return content[:begin] + draw.choice(ODD_WORDS) + content[draw.choice([begin, end]) :]


def _change_digits(draw: Random, content: bytes) -> bytes:
    found = list(re.finditer(rb"\d+", content[:100_000]))
    if not found:
        return content
    which = draw.choice(found)
    return content[: which.start()] + draw.choice(ODD_WORDS) + content[which.end() :]


def _replace_all(draw: Random, content: bytes) -> bytes:
    whole = [b"", b"[" * DEEP, b'{"a":' * DEEP, b"\x00" * 1000, b"\xff" * 1000, b"a" * DEEP, b"x ="]
    return draw.choice([*whole, draw.randbytes(1000), b"x = " + b"[" * DEEP, b"(" * DEEP])


_OF_BYTES: list[Mutation] = [
    *(_flip, _flip, _flip, _fill, _put_number, _put_float, _cut, _drop, _repeat, _move),
    *(_put_word, _change_digits, _replace_all),
]


def change_value(draw: Random, value: Any) -> Any:
    """The value with something changed in it, as deep as it goes."""
    if isinstance(value, (dict, list)) and value and draw.random() < 0.85:
        items: list[Any] = list(value.items()) if isinstance(value, dict) else list(value)
        i = draw.randrange(len(items))
        way = draw.random()
        if way < 0.1:
            del items[i]
        elif way < 0.2:
            more = draw.choice(ODD_VALUES)
            items.insert(i, ("more", more) if isinstance(value, dict) else more)
        elif way < 0.25:
            items[i], items[-1] = items[-1], items[i]
        elif isinstance(value, dict):
            name = "x" + items[i][0] if way < 0.3 else items[i][0]
            items[i] = (name, change_value(draw, items[i][1]))
        else:
            items[i] = change_value(draw, items[i])
        return dict(items) if isinstance(value, dict) else items
    if draw.random() < 0.03:
        for _ in range(draw.choice([10, 60, 500])):
            value = [value]
        return value
    if isinstance(value, int) and draw.random() < 0.3:
        return value + draw.choice([-1, 1, 2, 8, 2**20])
    return draw.choice(ODD_VALUES)


def _dump(draw: Random, value: Any) -> bytes:
    return json.dumps(value, indent=draw.choice([None, 1])).encode("utf-8", "surrogatepass")


def mutate_json(draw: Random, content: bytes) -> bytes:
    value = json.loads(content)
    if draw.random() < 0.5:  # as earlier versions wrote it
        value.pop(SEAL, None)
    return _dump(draw, change_value(draw, value))


def mutate_json_lines(draw: Random, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    if draw.random() < 0.3:
        return b"".join(mutate_items(draw, lines))
    i = draw.randrange(len(lines))
    lines[i] = json.dumps(change_value(draw, json.loads(lines[i]))).encode() + b"\n"
    return b"".join(lines)


def mutate_items(draw: Random, items: list[Any]) -> list[Any]:
    """The items in another number or order."""
    items, i = list(items), draw.randrange(len(items))
    way = draw.randrange(3)
    if way == 0:
        del items[i]
    elif way == 1:
        items.insert(draw.randrange(len(items)), items[i])
    else:
        items.append(items.pop(i))
    return items


def mutate_cells(draw: Random, content: bytes) -> bytes:
    lines = content.split(b"\n")
    i = draw.randrange(len(lines))
    cells = lines[i].split(b",")
    j = draw.randrange(len(cells))
    if draw.random() < 0.7:
        cells[j] = draw.choice([*ODD_WORDS, b'"' + b"x" * 200_000, b"", cells[j] * 2])
    else:
        cells = mutate_items(draw, cells)
    lines[i] = b",".join(cells)
    return b"\n".join(lines)


def mutate_toml(draw: Random, content: bytes) -> bytes:
    lines = content.split(b"\n")
    where = [i for i, line in enumerate(lines) if line.strip()]
    i = draw.choice(where)
    if draw.random() < 0.25:
        return b"\n".join(mutate_items(draw, lines))
    key, equals, value = lines[i].partition(b" = ")
    if not equals:
        lines[i] = draw.choice([b"[x]", b"[[x]]", b"[" + b"a." * 5000 + b"a]", lines[i] + b".x"])
    elif draw.random() < 0.1:
        lines[i] = b"x" + lines[i]
    else:
        odd = [b"{ x = 1 }", b"[[x]]", b"1979-05-27", b"'''", b"[" * 5000 + b"]" * 5000, b"-0.0"]
        words = [json.dumps(each).encode() for each in ODD_VALUES if not isinstance(each, dict)]
        other = lines[draw.choice(where)].partition(b" = ")[2]
        lines[i] = key + equals + draw.choice([*odd, *words, other, b"[" + value + b"]"])
    return b"\n".join(lines)


def mutate_safetensors(draw: Random, content: bytes) -> bytes:
    """Header or numbers changed; what stands in front says how long the header is."""
    size = struct.unpack("<Q", content[:8])[0]
    header, numbers = json.loads(content[8 : 8 + size]), content[8 + size :]
    if draw.random() < 0.5:  # as earlier versions wrote it
        header.get("__metadata__", {}).pop(f"foveapool.{SEAL}", None)
    way = draw.random()
    names = [name for name in header if name != "__metadata__"]
    if way < 0.3:
        numbers = mutate_numbers(draw, numbers)
    elif way < 0.4:
        header[draw.choice(names)]["dtype"] = draw.choice(["F64", "F32", "F16", "I64", "C64", "U8"])
    elif way < 0.5:
        one, other = draw.choice(names), draw.choice(names)
        header[one], header[other] = header[other], header[one]
    elif way < 0.6:
        shape = header[draw.choice(names)]["shape"]
        draw.shuffle(shape)
        draw.choice([lambda: shape.append(1), lambda: shape.insert(0, 1), lambda: None])()
    elif way < 0.9 and "foveapool" in header.get("__metadata__", {}):
        own = header["__metadata__"]
        own["foveapool"] = _dump(draw, change_value(draw, json.loads(own["foveapool"]))).decode(
            "utf-8", "replace"
        )
    else:
        header = change_value(draw, header)
    told = json.dumps(header).encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(told)) + told + numbers


def mutate_numbers(draw: Random, content: bytes) -> bytes:
    """Bytes changed, none taken away."""
    return draw.choice([_flip, _put_float, _put_number, _fill])(draw, content)[: len(content)]


def inside_gzip(change: Mutation) -> Mutation:
    """What damages the content of a compressed file, whose checksum is right again."""
    return lambda draw, content: gzip.compress(change(draw, gzip.decompress(content)), 1, mtime=0)


def mutate_zip(draw: Random, content: bytes) -> bytes:
    """Members changed, each with its checksum."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(each.filename, archive.read(each)) for each in archive.infolist()]
    if draw.random() < 0.2:
        members = mutate_items(draw, members)
    else:
        i = draw.randrange(len(members))
        members[i] = (members[i][0], mutate_npy(draw, members[i][1]))
    found = io.BytesIO()
    kind = draw.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
    with zipfile.ZipFile(found, "w") as archive:
        for name, member in members:
            archive.writestr(zipfile.ZipInfo(name), member, kind)
    return found.getvalue()


def mutate_npy(draw: Random, content: bytes) -> bytes:
    """Type, shape or order changed, or any bytes."""
    size = struct.unpack("<H", content[8:10])[0]
    if draw.random() < 0.2:
        return mutate_bytes(draw, content)
    header = content[10 : 10 + size].decode().strip()
    types = ["|O", "|S0", "<U9999999", "|V100", "<f8", "<i2", "|b1", ">u4", "<M8[s]", "|u1"]
    shapes = ["()", "(0,)", "(-1,)", "(99999999999,)", "(30000, 30000, 3)", "(1,)", "(2, 2)"]
    way = draw.randrange(4)
    if way == 0:
        header = re.sub(r"'descr': '[^']*'", f"'descr': '{draw.choice(types)}'", header)
    elif way == 1:
        header = re.sub(r"\([^)]*\)", draw.choice(shapes), header)
    elif way == 2:
        header = header.replace("False", "True")
    else:
        header = mutate_bytes(draw, header.encode()).decode("latin1")[:60_000]
    told = header.encode("latin1", "replace") + b" \n"
    return content[:8] + struct.pack("<H", len(told)) + told + content[10 + size :]


def mutate_tar(draw: Random, content: bytes) -> bytes:
    """A field of a member's header changed, and the header's checksum made right."""
    blocks = [i for i in range(0, len(content), 512) if content[i + 257 : i + 262] == b"ustar"]
    if not blocks or draw.random() < 0.2:
        return mutate_bytes(draw, content)
    at = draw.choice(blocks)
    head = bytearray(content[at : at + 512])
    fields = {"name": (0, 100), "mode": (100, 8), "size": (124, 12), "kind": (156, 1)}
    begin, size = draw.choice([*fields.values(), (157, 100), (345, 155)])
    words = [b"../x", b"/x", b"a" * 100, b"7" * 11, b"-1", b"\xff" * 12, b"0", b"1", b"2", b"3"]
    words += [b"6", b"L", b"K", b"x", b"g", b"S", b"\x80" + b"\xff" * 11, b"\x80" + b"\x00" * 10]
    head[begin : begin + size] = draw.choice(words)[:size].ljust(size, b"\x00")
    head[148:156] = b" " * 8
    head[148:156] = f"{sum(head):06o}\x00 ".encode()
    return content[:at] + bytes(head) + content[at + 512 :]


def mutate_mat(draw: Random, content: bytes) -> bytes:
    """What an element of a MATLAB file holds, compressed again."""
    elements, at = [], 128
    while at + 8 <= len(content):
        kind, size = struct.unpack("<II", content[at : at + 8])
        elements.append((kind, content[at + 8 : at + 8 + size]))
        at += 8 + size
    if draw.random() < 0.15:
        elements = mutate_items(draw, elements)
    else:
        i = draw.randrange(len(elements))
        kind, held = elements[i]
        plain = zlib.decompress(held) if kind == 15 else held
        elements[i] = (kind, mutate_bytes(draw, plain))
        if kind == 15:
            elements[i] = (kind, zlib.compress(elements[i][1], 1))
    parts = [struct.pack("<II", kind, len(held)) + held for kind, held in elements]
    return content[:128] + b"".join(parts)


def mutate_png(draw: Random, content: bytes) -> bytes:
    """A chunk changed, and its checksum made right."""
    chunks, at = [], 8
    while at + 12 <= len(content):
        size = struct.unpack(">I", content[at : at + 4])[0]
        chunks.append(content[at + 4 : at + 8 + size])
        at += 12 + size
    if draw.random() < 0.2:
        chunks = mutate_items(draw, chunks)
    else:
        i = draw.randrange(len(chunks))
        kind = chunks[i][:4] if draw.random() < 0.9 else draw.choice([b"acTL", b"zTXt", b"iCCP"])
        chunks[i] = kind + mutate_bytes(draw, chunks[i][4:])
    parts = [
        struct.pack(">I", len(each) - 4) + each + struct.pack(">I", zlib.crc32(each))
        for each in chunks
        if len(each) >= 4
    ]
    return content[:8] + b"".join(parts)


def mutate_pickle(draw: Random, content: bytes) -> bytes:
    """Instructions put in, or numbers of theirs changed."""
    codes = [
        *(b"\x8a\x08" + b"\xff" * 8, b"\x8b\xff\xff\xff\x7f", b"B\xff\xff\xff\x7f", b"(", b"t"),
        *(b"cos\nsystem\n", b"c__builtin__\neval\n", b"\x93", b"R", b"\x81", b"b", b"2", b"Q"),
        *(b"r\xff\xff\xff\x7f", b"j\xff\xff\xff\x7f", b"\x94", b"]", b"}", b"\x85" * 1000),
        *(b"(" * 1000, b"h\x00", b"0", b"e", b"}s", b"u", b"d", b"l", b"P1\n", b"\x82\x01"),
        *(b"I" + b"9" * 10_000 + b"\n", b"F1e999\n", b"\x97", b"\x96" + b"\xff" * 8, b"."),
    ]
    begin, end = _spot(draw, content)
    return content[:begin] + draw.choice(codes) + content[draw.choice([begin, end]) :]

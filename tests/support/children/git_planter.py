"""Writes objects into the git of a clone that no git would write; an agent runs it there."""

import hashlib
import struct
import subprocess
import zlib
from pathlib import Path

FILE, LINK, FOLDER = b"100644", b"120000", b"40000"
BASE = bytes((1 << 24) - 1)


def asked(*words: str) -> str:
    return subprocess.check_output(["git", *words], text=True).strip()


OBJECTS = Path(asked("rev-parse", "--git-path", "objects"))


def put(kind: bytes, data: bytes) -> str:
    """Write a loose object; return its name."""
    whole = b"%s %d\0%s" % (kind, len(data), data)
    name = hashlib.sha1(whole).hexdigest()
    folder = OBJECTS / name[:2]
    folder.mkdir(exist_ok=True)
    (folder / name[2:]).write_bytes(zlib.compress(whole, 1))
    return name


def blob(data: bytes) -> str:
    return put(b"blob", data)


def tree(*entries: tuple[bytes, bytes, str]) -> str:
    lines = [b"%s %s\0%s" % (mode, name, bytes.fromhex(at)) for mode, name, at in entries]
    return put(b"tree", b"".join(lines))


def nested(inner: str, width: int, depth: int) -> str:
    """A tree that names the one below many times, and so on."""
    for _ in range(depth):
        inner = tree(*((FOLDER, b"d%02d" % number, inner) for number in range(width)))
    return inner


def commit(at: str) -> str:
    parent = asked("rev-parse", "HEAD")
    who = "a <a@b> 1700000000 +0000"
    text = f"tree {at}\nparent {parent}\nauthor {who}\ncommitter {who}\n\nx\n"
    return put(b"commit", text.encode())


def leave(at: str, ref: str = "HEAD") -> None:
    asked("update-ref", "--no-deref", ref, at)


def zeros(size: int) -> str:
    """A blob of zeros, packed: a thousandth of its size. Nobody has hashed it."""
    packer, piece = zlib.compressobj(9), bytes(1 << 20)
    packed = b"".join(packer.compress(piece) for _ in range(size >> 20)) + packer.flush()
    pack([(3, size, b"", packed)], [f"{size:040x}"])
    return f"{size:040x}"


def copies(count: int, seed: int = 0) -> list[tuple[bytes, bytes, str]]:
    """A file, and one that says of itself that it is the first one, many times over."""
    base = BASE[:-1] + bytes([seed])
    every = b"\xf0" + struct.pack("<L", len(base))[:3]
    delta = number(len(base)) + number(count * len(base)) + every * count
    packed = zlib.compress(base, 9)
    offset = 12 + len(head(3, len(base))) + len(packed)
    name = hashlib.sha1(b"%d" % seed).hexdigest()
    whole = hashlib.sha1(b"blob %d\0%s" % (len(base), base)).hexdigest()
    back = distance(offset - 12)
    entries = [(3, len(base), b"", packed), (6, len(delta), back, zlib.compress(delta))]
    pack(entries, [whole, name])
    return [(FILE, b"%d-0" % seed, whole), (FILE, b"%d-1" % seed, name)]


def number(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def distance(value: int) -> bytes:
    found = [value & 0x7F]
    while value := value >> 7:
        value -= 1
        found.append(value & 0x7F | 0x80)
    return bytes(reversed(found))


def head(kind: int, size: int) -> bytes:
    first, size = kind << 4 | size & 15, size >> 4
    return bytes([first | 0x80]) + number(size) if size else bytes([first])


def pack(entries: list[tuple[int, int, bytes, bytes]], names: list[str]) -> None:
    """Write a pack, and a list that gives its objects the names that it wants."""
    body, listed = b"PACK" + struct.pack(">LL", 2, len(entries)), []
    for (kind, size, back, packed), name in zip(entries, names, strict=True):
        entry = head(kind, size) + back + packed
        listed.append((bytes.fromhex(name), zlib.crc32(entry), len(body)))
        body += entry
    body += hashlib.sha1(body).digest()
    listed.sort()
    counts = [sum(name[0] <= first for name, _, _ in listed) for first in range(256)]
    index = b"\xfftOc" + struct.pack(">L", 2) + struct.pack(">256L", *counts)
    index += b"".join(name for name, _, _ in listed)
    index += b"".join(struct.pack(">L", crc) for _, crc, _ in listed)
    index += b"".join(struct.pack(">L", at) for _, _, at in listed) + body[-20:]
    index += hashlib.sha1(index).digest()
    for ending, content in (("pack", body), ("idx", index)):
        (OBJECTS / f"pack/pack-{body[-20:].hex()}.{ending}").write_bytes(content)

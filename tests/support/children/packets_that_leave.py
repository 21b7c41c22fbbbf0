"""Runs a hostile child at a level, in a network namespace of its own, and prints what left.

Started as root with the level as its argument. The namespace has loopback and one interface, whose
packets are recorded. The child may connect to one local port. Prints a JSON list of destinations.
"""

import asyncio
import ctypes
import json
import socket
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from infloop.sandbox.access import Access
from infloop.sandbox.base import ChildRequest
from support.canaries import PATH, PYTHON, directory_for_children, place
from support.confinement import sandbox_at

NEW_NETWORK = 0x40000000
INTERFACE = "d0"
EVERYTHING = 3
IPV4, IPV6 = 0x0800, 0x86DD
MARKER = "203.0.113.99"
GROUP = bytes([239, 1, 2, 3])
COMMANDS = (
    "ip link set lo up",
    f"ip link add {INTERFACE} type veth peer name d1",
    "ip link set d1 up",
    f"ip link set {INTERFACE} up arp off",
    f"ip addr add 198.18.0.1/24 dev {INTERFACE}",
    f"ip -6 addr add 2001:db8::1/64 dev {INTERFACE} nodad",
    f"ip route add default via 198.18.0.2 dev {INTERFACE}",
    f"ip -6 route add default via 2001:db8::2 dev {INTERFACE}",
)

ATTEMPTS = """
import contextlib, socket, struct, sys
port, index = map(int, sys.argv[1:])
four, six = ("127.0.0.1", port), ("::1", port)
router = socket.inet_pton(socket.AF_INET6, "2001:db8:5::5")
loose = bytes([131, 7, 4]) + socket.inet_aton("203.0.113.5") + bytes(1)
segments = bytes([0, 4, 4, 1, 1, 0, 0, 0]) + socket.inet_pton(socket.AF_INET6, "::1") + router
mobile = bytes([0, 2, 2, 1, 0, 0, 0, 0]) + router
padding = bytes([0, 0, 1, 4, 0, 0, 0, 0])
group = socket.inet_aton("239.1.2.3")
options = {
    "IP_OPTIONS": (four, 0, 4, loose),
    "IPV6_RTHDR with segments": (six, 41, 57, segments),
    "IPV6_RTHDR of mobile hosts": (six, 41, 57, mobile),
    "IPV6_2292RTHDR": (six, 41, 5, segments),
    "IPV6_HOPOPTS": (six, 41, 54, padding),
    "IPV6_DSTOPTS": (six, 41, 59, padding),
    "SO_BINDTODEVICE": (four, 1, 25, b"d0\\0"),
    "SO_BINDTODEVICE over IPv6": (six, 1, 25, b"d0\\0"),
    "SO_BINDTOIFINDEX": (four, 1, 62, struct.pack("=i", index)),
    "SO_BINDTOIFINDEX over IPv6": (six, 1, 62, struct.pack("=i", index)),
    "SO_MARK": (four, 1, 36, struct.pack("=i", 1)),
    "SO_DONTROUTE": (four, 1, 5, struct.pack("=i", 1)),
    "IP_UNICAST_IF": (four, 0, 50, struct.pack("!I", index)),
    "IPV6_UNICAST_IF": (six, 41, 76, struct.pack("!I", index)),
    "IP_TRANSPARENT": (four, 0, 19, struct.pack("=i", 1)),
    "IP_FREEBIND": (four, 0, 15, struct.pack("=i", 1)),
    "IP_ADD_MEMBERSHIP": (four, 0, 35, group + socket.inet_aton("198.18.0.1")),
    "MCAST_JOIN_GROUP": (four, 0, 42, struct.pack("=I4xHH", index, 2, 0) + group + bytes(120)),
    "TCP_REPAIR": (four, 6, 19, struct.pack("=i", 1)),
    "TCP_FASTOPEN_CONNECT": (four, 6, 30, struct.pack("=i", 1)),
    "TCP_ULP": (four, 6, 31, b"tls"),
}
for name, (where, level, option, value) in options.items():
    with contextlib.suppress(OSError):
        s = socket.socket(socket.AF_INET6 if where is six else socket.AF_INET)
        s.setblocking(False)
        with contextlib.suppress(OSError):
            s.setsockopt(level, option, value)
        s.connect_ex(where)
        s.send(b"secret")
far = ("203.0.113.9", 80)
for flag in (0, socket.MSG_FASTOPEN, socket.MSG_DONTROUTE):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with contextlib.suppress(OSError):
            s = socket.socket(socket.AF_INET, kind)
            s.setblocking(False)
            s.sendto(b"secret", flag, far)
        with contextlib.suppress(OSError):
            s = socket.socket(socket.AF_INET, kind)
            s.setblocking(False)
            s.sendmsg([b"secret"], [], flag, far)
# A filter cannot see what is beside a message. On a TCP socket the kernel ignores it.
for where, beside in (
    (six, (41, 57, segments)),
    (six, (41, 57, mobile)),
    (six, (41, 50, router + struct.pack("=I", index))),
    (four, (0, 7, loose)),
    (four, (0, 8, struct.pack("=I4s4s", index, bytes(4), bytes(4)))),
):
    with contextlib.suppress(OSError):
        s = socket.socket(socket.AF_INET6 if where is six else socket.AF_INET)
        s.settimeout(5)
        s.connect(where)
        s.sendmsg([b"secret"], [beside])
print("done")
"""


def destination(packet: bytes) -> str:
    """Return where a packet goes; empty for what the kernel sends on its own behalf."""
    kind = int.from_bytes(packet[12:14], "big")
    if kind == IPV4:
        where = socket.inet_ntoa(packet[30:34])
        # The kernel may join groups of its own; the child's is 239.1.2.3.
        is_its_own = where.startswith("224.") and GROUP not in packet
        return "" if is_its_own else where
    six = socket.inet_ntop(socket.AF_INET6, packet[38:54]) if kind == IPV6 else ""
    return "" if six.startswith("ff02:") else six


async def main(level: str) -> list[str]:
    recorder = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(EVERYTHING))
    recorder.bind((INTERFACE, 0))
    recorder.settimeout(30)
    four = socket.create_server(("127.0.0.1", 0))
    port = four.getsockname()[1]
    six = socket.create_server(("::1", port), family=socket.AF_INET6)
    with place() as parent, four, six:
        workspace = str(directory_for_children(parent, "workspace"))
        argv = (PYTHON, "-c", ATTEMPTS, str(port), str(socket.if_nametoindex(INTERFACE)))
        access = Access(write=(workspace,), network="none", local_ports=(port,))
        child = ChildRequest(argv, workspace, {"PATH": PATH}, timeout_ms=60_000, access=access)
        async with sandbox_at(level, parent) as sandbox:
            result = await sandbox.run(child)
    assert result.stdout == "done\n", result
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
        last.sendto(b"", (MARKER, 9))
    left: set[str] = set()
    while (where := destination(recorder.recv(2048))) != MARKER:
        left.add(where)
    return sorted(left - {""})


if __name__ == "__main__":
    assert ctypes.CDLL(None, use_errno=True).unshare(NEW_NETWORK) == 0
    for command in COMMANDS:
        subprocess.run(command.split(), check=True)
    print(json.dumps(asyncio.run(main(sys.argv[1]))))

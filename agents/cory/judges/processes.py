"""Worker processes on every system: start, connection, members, memory, end.

On POSIX a worker leads a session and a process group and inherits a socket. Elsewhere (Windows) it connects
to a local port, and its descendants stand in for the session.
"""

import hmac
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection

import psutil

POSIX = os.name == "posix"

KEY_BYTES = 32
"""Length of the key by which a worker that connects to a port is known."""

POLL_INTERVAL = 0.1
"""Seconds between checks of a process that is waited for."""

CONNECT_TIMEOUT = 120.0
"""Seconds that a process may take to connect to its port."""

Process = subprocess.Popen[bytes]


def start(memory_mb: int, *, seconds: float, env: Mapping[str, str]) -> tuple[Process, Connection]:
    """Start a worker and return it with the connection to it; sending and receiving never block long.

    If the process ends before it has connected, the connection is closed at its other end.
    """
    if not POSIX:
        return _start_with_port(memory_mb, env)
    ours, theirs = socket.socketpair()
    for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):  # a stopped process must not block us
        ours.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(seconds) + 1, 0))
    with theirs:
        process = subprocess.Popen(
            _command(f"fd:{theirs.fileno()}", memory_mb),
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    return process, Connection(ours.detach())


def _start_with_port(memory_mb: int, env: Mapping[str, str]) -> tuple[Process, Connection]:
    """Start a worker that connects to a port of this machine and sends the key it reads from stdin."""
    key = secrets.token_bytes(KEY_BYTES)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(POLL_INTERVAL)
        process = subprocess.Popen(
            _command(f"port:{server.getsockname()[1]}", memory_mb),
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdin is not None
        with suppress(OSError), process.stdin:
            process.stdin.write(key)
        deadline = time.monotonic() + CONNECT_TIMEOUT
        while process.poll() is None and time.monotonic() < deadline:
            with suppress(TimeoutError):
                ours, _ = server.accept()
                if _knows_key(ours, key):
                    return process, Connection(ours.detach())
                ours.close()
    ours, theirs = socket.socketpair()
    theirs.close()
    return process, Connection(ours.detach())


def _knows_key(connected: socket.socket, key: bytes) -> bool:
    """Whether the first bytes from a socket are the key."""
    connected.settimeout(1.0)
    received = b""
    with suppress(OSError):
        while len(received) < KEY_BYTES and (part := connected.recv(KEY_BYTES - len(received))):
            received += part
    connected.settimeout(None)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return hmac.compare_digest(received, key)


def _command(link: str, memory_mb: int) -> list[str]:
    return [sys.executable, "-P", "-m", "cory.judges.worker", link, str(memory_mb)]


def kill(process: Process) -> None:
    """Kill a worker and everything in its group and session; without sessions, its descendants."""
    others = set(session_members(process.pid)) - {process.pid}
    if POSIX:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    for pid in others:
        with suppress(psutil.Error):
            psutil.Process(pid).kill()
    process.wait()


def session_members(leader: int) -> list[int]:
    """Return the processes in the session of `leader`; without sessions, it and its descendants."""
    if not POSIX:
        try:
            family = psutil.Process(leader)
            return [leader, *(child.pid for child in family.children(recursive=True))]
        except psutil.Error:  # it has ended
            return []
    members = []
    for pid in psutil.pids():
        with suppress(OSError):  # it has just ended, or its session is secret
            if os.getsid(pid) == leader:
                members.append(pid)
    return members


def memory_megabytes(pid: int) -> float:
    """Return the memory that a process holds in MB; 0 once it has ended.

    Pages shared with other processes count in proportion on Linux, and not at all elsewhere.
    """
    try:
        memory = psutil.Process(pid).memory_full_info()._asdict()
    except psutil.Error:
        return 0.0
    measure = next(name for name in ("pss", "uss", "rss") if name in memory)
    return float(memory[measure]) / 2**20

# SPDX-License-Identifier: Apache-2.0
"""The connections that a daemon holds to others, whoever they are: counted, and cut from outside.

A daemon's sockets are borrowed from it (pidfd_getfd), so a service of any kind can be cut off
without a relay, which those would see through that tell their clients their own addresses.
"""

import contextlib
import ctypes
import errno
import os
import socket

from harness.limits import wait_until

SYS_PIDFD_GETFD = 438  # on all systems alike


def _borrowed(pidfd, descriptor):
    libc = ctypes.CDLL(None, use_errno=True)
    ours = libc.syscall(SYS_PIDFD_GETFD, pidfd, descriptor, 0)
    if ours >= 0:
        return socket.socket(fileno=ours)
    number = ctypes.get_errno()
    if number == errno.EBADF:  # closed meanwhile
        return None
    raise OSError(number, f"pidfd_getfd: {os.strerror(number)}")


@contextlib.contextmanager
def _outbound(daemon):
    """Its sockets that it has connected itself, by inode, borrowed until the block ends."""
    own = {*daemon.listeners, daemon.admin}
    pidfd = os.pidfd_open(daemon.pid)
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, pidfd)
        found = {}
        for entry in os.scandir(f"/proc/{daemon.pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                inode = os.readlink(entry.path)
                sock = _borrowed(pidfd, int(entry.name)) if inode.startswith("socket:") else None
                if sock is None:
                    continue
                stack.enter_context(sock)
                with contextlib.suppress(OSError):  # not connected
                    sock.getpeername()
                    if sock.getsockname() not in own:
                        found[inode] = sock
        yield found


def connections(daemon):
    """Which connections it has made that stand now, by inode."""
    with _outbound(daemon) as found:
        return set(found)


def cut_connections(daemon):
    """Ends every connection that it has made, as if the other side had; returns when each has been
    replaced."""
    with _outbound(daemon) as found:
        gone = set(found)
        for sock in found.values():
            with contextlib.suppress(OSError):  # the other side was faster
                sock.shutdown(socket.SHUT_RDWR)
    assert gone, "it has made none"
    wait_until(lambda: not gone & (now := connections(daemon)) and len(now) >= len(gone),
               "what was cut is replaced", 20)

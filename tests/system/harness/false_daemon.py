# SPDX-License-Identifier: Apache-2.0
"""A daemon that answers as a test likes: for what a real one does only by chance."""

import contextlib
import threading


def serve(listener, answer):
    """Answer each command with what `answer(words)` returns, without the line's end. None: close
    that connection. Ends with the listener, or its connections."""
    def talk(connection):
        with contextlib.suppress(OSError, ValueError), connection:
            asked = connection.makefile("rb")
            while line := asked.readline():
                words = [asked.read(int(asked.readline()[1:]) + 2)[:-2].decode()
                         for _ in range(int(line[1:]))]
                said = answer(words)
                if said is None:
                    break
                connection.sendall(said.encode() + b"\r\n")

    def accept():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=talk, args=(listener.accept()[0],), daemon=True).start()
    threading.Thread(target=accept, daemon=True).start()

# SPDX-License-Identifier: Apache-2.0
"""For tests of programs that use Stockade: a daemon of the test's own.

    with stockade.testing.daemon() as daemon:
        shop = daemon.connect()

It listens on a free port of the loopback address, keeps its store in memory, and ends, store and
all, with the block. `stockaded` is found in PATH, or where the environment variable
STOCKADED says."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import tempfile
import time
from types import TracebackType
from typing import Any, Optional, Type

from stockade import aio
from stockade.client import Stockade, connect

START_SECONDS = 30.0
END_SECONDS = 10.0


class Daemon:
    """A stockaded that runs. `uri` leads to it."""

    def __init__(self, *options: str, program: Optional[str] = None) -> None:
        path = program or os.environ.get("STOCKADED") or "stockaded"
        self._folder = tempfile.mkdtemp(prefix="stockade-test-")
        try:
            with open(os.path.join(self._folder, "log"), "wb") as log:
                self._process = subprocess.Popen(
                    [path, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
                     "--store", ":memory:", *options],
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        try:
            self.uri = "stockade://" + self._address()
        except BaseException:
            self.close()
            raise

    def _address(self) -> str:
        """Where it listens: it says so on one line."""
        assert self._process.stdout is not None
        said, until = b"", time.monotonic() + START_SECONDS
        while not said.endswith(b"\n"):
            left = max(0.0, until - time.monotonic())
            if not select.select([self._process.stdout], [], [], left)[0]:
                break
            byte = os.read(self._process.stdout.fileno(), 1)
            if not byte:
                break
            said += byte
        found = re.search(rb"listen=(127\.0\.0\.1:\d+)", said)
        if not found:
            raise RuntimeError(f"stockaded did not start: {said.decode(errors='replace')}\n"
                               f"{self.log()}")
        return found[1].decode()

    def log(self) -> str:
        """What it has logged."""
        with open(os.path.join(self._folder, "log"), encoding="utf-8", errors="replace") as log:
            return log.read()

    def connect(self, **options: Any) -> Stockade:
        """stockade.connect() to it."""
        return connect(self.uri, **options)

    def aio_connect(self, **options: Any) -> aio.Stockade:
        """stockade.aio.connect() to it."""
        return aio.connect(self.uri, **options)

    def close(self) -> None:
        """End it, and remove its folder."""
        self._process.terminate()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()


def daemon(*options: str, program: Optional[str] = None) -> Daemon:
    """Start one, with options of stockaded's: daemon("--unfenced-writes", "allow")."""
    return Daemon(*options, program=program)

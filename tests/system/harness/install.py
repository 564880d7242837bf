# SPDX-License-Identifier: Apache-2.0
"""Stockade, installed: `make install` into a folder that goes with the tests."""

import atexit
import functools
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from harness.limits import BUILD, REPO

VERSION = re.search(r'STK_VERSION +"(.*)"', (REPO / "proxy/client/stockade.h").read_text())[1]


def make(target, *words):
    """Runs it over what was built, and builds nothing."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    subprocess.run(["make", "-o", "all", f"BUILD={BUILD}", target, *words], cwd=REPO, check=True,
                   stdout=subprocess.DEVNULL, env=env)


@functools.lru_cache(maxsize=None)
def prefix():
    """Where it is installed."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="stockade-prefix-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    make("install", f"PREFIX={folder}")
    return folder


def found_by():
    """What makes the compiler and programs find it; in /usr/local they do so by themselves."""
    return {"PKG_CONFIG_PATH": str(prefix() / "lib/pkgconfig"),
            "LD_LIBRARY_PATH": str(prefix() / "lib")}


def environment():
    return {**os.environ, **found_by()}


def compile_c(source, program, *flags, options=""):
    """With nothing but what pkg-config says, asked with these options."""
    words = " ".join(flags)
    subprocess.run(f"cc {source} {words} $(pkg-config {options} --cflags --libs stockade) "
                   f"-o {program}",
                   shell=True, check=True, env=environment())

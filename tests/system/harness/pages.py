# SPDX-License-Identifier: Apache-2.0
"""Runs the code blocks of a Markdown page as they are written, in the order in which they stand, in
one scratch folder.

A comment on the line before a block says what becomes of it:

    <!-- test: NAME [OPTION ...] -->     it is run
    <!-- not run: REASON -->             it is not

    background     (sh) it stays up, from its "stockaded ready" line on, until the page ends
    stop=NAME      the background block NAME is stopped first, as with Ctrl-C
    file=NAME      it is not run but written to that file
    redis          a redis-server is on its default port from here on
    postgres       a PostgreSQL is where its programs look for one, from here on
    flags=A,B      (c) goes on the compiler's command line, after the file
    installed      the library is where the compiler and programs look for it, from here on

sh blocks run under bash -e, python ones with Debian's python3, js ones with node as modules; c and
java ones are compiled and run. In a console block each line after '$ ' is a shell command, and each
one after '127.0.0.1:7379> ' goes through redis-cli; the lines below it are its output, in which
'...' stands for anything.

The folder has build/ in it and in PATH, and the packages in proxy/client are found as if they were
installed. /usr/local in a block is where the tests install Stockade.
"""

import collections
import contextlib
import os
import re
import signal
import subprocess

from harness import install, netns, postgres
from harness.limits import BUILD, HANG_SECONDS, REPO, environment, patience, wait_until
from harness.programs import NODE, link_node_modules

PACKAGES = REPO / "proxy/client"
JDBC = "/usr/share/java/postgresql.jar"
OPENING = re.compile(r"^( *)```([\w+-]*)\s*$")
COMMENT = re.compile(r"^<!-- (test|not run): (.*?) -->$")
PROMPTS = ("$ ", "127.0.0.1:7379> ")

Block = collections.namedtuple("Block", "line language text action name options")


def parse(page):
    """All fenced code blocks. `action` is 'test', 'not run', or None where no comment says."""
    blocks, before, opened = [], "", None
    for number, line in enumerate(page.splitlines(), 1):
        if opened is None:
            opened = OPENING.match(line)
            if opened:
                begun, lines = number, []
            elif line.strip():
                before = line.strip()
        elif line.strip() == "```":
            blocks.append(make_block(begun, opened[2], "\n".join(lines) + "\n", before))
            opened, before = None, ""
        else:
            lines.append(line[len(opened[1]):])
    assert opened is None, f"the block of line {begun} does not end"
    return blocks


def make_block(line, language, text, before):
    comment = COMMENT.match(before)
    if not comment:
        return Block(line, language, text, None, None, {})
    if comment[1] == "not run":
        return Block(line, language, text, "not run", None, {})
    name, *words = comment[2].split()
    options = dict(word.partition("=")[::2] for word in words)
    unknown = set(options) - {"background", "stop", "file", "redis", "postgres", "flags",
                              "installed"}
    assert not unknown, f"line {line}: unknown options {unknown}"
    return Block(line, language, text, "test", name, options)


SLOW = re.compile(r"^\(\d+\.\d\ds\)\n?", re.M)  # said by redis-cli of an answer that took long


class Place:
    """A folder and a network in which blocks run."""

    def __init__(self, folder):
        self.folder = folder
        self.running = {}
        self.cleanups = []
        self.prefix = ()
        (folder / "build").symlink_to(BUILD)
        self.env = {**environment(), "PATH": f"{BUILD}:{os.environ['PATH']}",
                    "PYTHONPATH": str(PACKAGES / "python")}
        if netns.available():
            holder = self.start([*netns.inside(), "sh", "-c", "echo up; exec sleep 1000"], "net")
            wait_until(lambda: "up" in self.output("net"), "the network is up")
            self.prefix = netns.beside(holder.pid)

    def output(self, name):
        return (self.folder / f".{name}.out").read_text()

    def start(self, args, name):
        with open(self.folder / f".{name}.out", "wb") as output:
            process = subprocess.Popen(
                [*self.prefix, *args], stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, env=self.env, cwd=self.folder, start_new_session=True)
        self.running[name] = process
        return process

    def run(self, args, text_in=""):
        """What the command printed, both streams; and its exit status."""
        done = subprocess.run(
            [*self.prefix, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            input=text_in, env=self.env, cwd=self.folder, timeout=patience(2 * HANG_SECONDS),
            check=False)
        return done.stdout, done.returncode

    def stop(self, name):
        process = self.running.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(patience(HANG_SECONDS))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def close(self):
        for name in reversed(list(self.running)):
            self.stop(name)
        for clean_up in self.cleanups:
            clean_up()


def run_page(blocks, folder):
    """Runs the blocks that are to be tested, one after the other; raises AssertionError where one
    does not do what the page says. The last block that is named on stdout is that one."""
    place = Place(folder)
    try:
        for block in blocks:
            if block.action == "test":
                print(f"line {block.line}: {block.name}")
                run_block(place, block)
    finally:
        place.close()


def run_block(place, block):
    if "stop" in block.options:
        place.stop(block.options["stop"])
    if "redis" in block.options:
        place.start(["redis-server", "--save", "", "--dir", place.folder], "redis")
        wait_until(lambda: "Ready to accept" in place.output("redis"), "redis-server is up")
    if "postgres" in block.options:
        postgres.start(place)
    text = block.text
    if "installed" in block.options:
        place.env.update(install.found_by())
    if "/usr/local" in text:
        text = text.replace("/usr/local", str(install.prefix()))
    block = block._replace(text=text)
    if "file" in block.options:
        (place.folder / block.options["file"]).write_text(text)
    elif "background" in block.options:
        process = place.start(["bash", "-e", "-c", text], block.name)
        wait_until(lambda: "stockaded ready:" in place.output(block.name) or
                   process.poll() is not None, f"block {block.name} is up")
        assert process.poll() is None, place.output(block.name)
    else:
        RUNNERS[block.language](place, block)


def expect_success(place, args):
    output, status = place.run(args)
    assert status == 0, f"exit status {status}:\n{output}"


def run_sh(place, block):
    expect_success(place, ["bash", "-e", "-c", block.text])


def run_python(place, block):
    expect_success(place, ["/usr/bin/python3", "-c", block.text])


def run_js(place, block):
    if not (place.folder / "node_modules").exists():
        link_node_modules(place.folder)
    (place.folder / "block.mjs").write_text(block.text)
    expect_success(place, [*NODE, "block.mjs"])


def run_c(place, block):
    (place.folder / "block.c").write_text(block.text)
    flags = filter(None, block.options.get("flags", "").split(","))
    expect_success(place, ["cc", "block.c", *flags, "-o", "block"])
    expect_success(place, ["./block"])


def run_java(place, block):
    name = re.search(r"^class (\w+)", block.text, re.M)[1]
    (place.folder / f"{name}.java").write_text(block.text)
    expect_success(place, ["javac", "-sourcepath", f".:{PACKAGES / 'java'}", "-d", "classes",
                           f"{name}.java"])
    expect_success(place, ["java", "-cp", f"classes:{JDBC}", name])


def dialogue(text):
    """A console block as (prompt, command, expected output) triples."""
    turns = []
    for line in text.splitlines():
        prompt = next((p for p in PROMPTS if line.startswith(p)), None)
        if prompt:
            turns.append([prompt, line[len(prompt):], []])
        else:
            assert turns, "output before the first prompt"
            turns[-1][2].append(line.rstrip())
    return [(prompt, command, "\n".join(lines)) for prompt, command, lines in turns]


def matches(expected, output):
    pattern = re.escape(expected.strip("\n")).replace(re.escape("..."), ".*")
    output = "\n".join(line.rstrip() for line in output.strip("\n").split("\n"))
    return re.fullmatch(pattern, output, re.DOTALL) is not None


def run_console(place, block):
    for prompt, command, expected in dialogue(block.text):
        if prompt == "$ ":
            output, _ = place.run(["bash", "-c", command])
        else:
            output, _ = place.run(["redis-cli", "-p", "7379", "--no-raw"], command + "\n")
            output = SLOW.sub("", output)
        assert matches(expected, output), f"{prompt}{command}\n{output}\ninstead of\n{expected}"


RUNNERS = {"sh": run_sh, "python": run_python, "js": run_js, "c": run_c, "java": run_java,
           "console": run_console}

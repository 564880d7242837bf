# SPDX-License-Identifier: Apache-2.0
"""What the programs' --help says, taken apart; it comes from their tables of options."""

import dataclasses
import re
import subprocess


@dataclasses.dataclass
class Option:
    name: str  # without its dashes
    value: str  # what its value is called; "": it takes none
    help: str
    short: str = ""  # its letter
    default: str = ""
    reloads: bool = False  # it changes on SIGHUP, too

    @property
    def choices(self):
        return self.value.split("|") if re.fullmatch(r"[a-z]+(\|[a-z]+)+", self.value) else []

    @property
    def takes_file(self):
        return self.value in ("FILE", "PATH")


@dataclasses.dataclass
class Command:
    """One command of `stockade`, or one of the programs."""
    name: str
    usage: str
    about: list  # paragraphs, as they are laid out
    options: list
    summary: str = ""


def ask(program, *words):
    return subprocess.run([program, *words, "--help"], check=True, text=True,
                          capture_output=True).stdout


def daemon(program):
    """stockaded as a Command, and what follows on its options."""
    text = ask(program)
    usage, about = text.split("\n\n")[0].split("\n", 1)
    options = []
    for name, value, body in re.findall(r"^  --(\S+) (\S+)\n((?: {8}.*\n)+)", text, re.M):
        body = " ".join(body.split())
        reloads = body.endswith(" [SIGHUP]")
        body = body.removesuffix(" [SIGHUP]")
        default = re.search(r" \(default (\S+)\)$", body)
        options.append(Option(name, value, body[:default.start()] if default else body,
                              default=default[1] if default else "", reloads=reloads))
    rest = text.split("--help, --version\n\n")[1]
    return Command("stockaded", usage.removeprefix("usage: "), [about], options), rest


def rows(text):
    """The rows of a table of two columns: their left and their right side, made one line each."""
    pairs = re.findall(r"^ {2,6}(--?\w.*?)(?: {2,}|\n {10,})(\S.*(?:\n {10,}.*)*)", text, re.M)
    return [(left, " ".join(right.split())) for left, right in pairs]


def options_of(text):
    options = []
    for left, right in rows(text):
        names = re.findall(r"-{1,2}([\w-]+)", left)
        value = re.search(r" ([^-\s]\S*)$", left)
        long = next((name for name in names if len(name) > 1), "")
        short = next((name for name in names if len(name) == 1), "")
        options.append(Option(long or short, value[1] if value else "", right,
                              short=short if long else ""))
    return options


def command(program, name, summary):
    usage, *about = ask(program, *name.split()).split("\n\n")
    options = about.pop()
    assert options.startswith("options:\n"), name
    listed = [option for option in options_of(options) if option.name not in ("help", "u")]
    return Command(name, usage.removeprefix("usage: "), about, listed, summary)


def command_line(program):
    """stockade as a Command, all its commands, and what follows on its options."""
    text = ask(program)
    usage, about = text.split("\n\n")[:2]
    listed, options, rest = re.search(r"commands:\n(.*?)\n\noptions, .*?\n(.*?)\n\n(.*)", text,
                                      re.S).groups()
    commands = [command(program, *row) for row in re.findall(r"^  (\S+(?: \S+)?) +(.*)$", listed,
                                                             re.M)]
    whole = Command("stockade", usage.removeprefix("usage: "), [about], options_of(options))
    return whole, commands, rest

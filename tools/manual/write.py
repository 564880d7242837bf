#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the manual pages, the completion for bash and a config file in which every option is
explained, from the programs' --help and the library's header:

    tools/manual/write.py PROGRAMS HEADER FOLDER     PROGRAMS: where stockaded and stockade are

    FOLDER/man/man1/stockade.1           each command
    FOLDER/man/man3/libstockade.3        each function; man3/stk_*.3 lead there
    FOLDER/man/man5/stockade.conf.5
    FOLDER/man/man8/stockaded.8
    FOLDER/bash-completion/completions/  stockade, stockaded
    FOLDER/doc/stockade/stockade.conf    every option, commented, with its default

What is the same for every program (exit codes, signals, files) stands here."""
import datetime
import os
import pathlib
import re
import shutil
import sys
import textwrap

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import completion  # noqa: E402
import header as headers  # noqa: E402
import helps  # noqa: E402

DAEMON_REST = [
    ("Service manager", """
Started by systemd with Type=notify, it says when it serves clients, when it reads its options
again and when it stops. With WatchdogSec= it also says that it is alive: as long as its loop turns
and the threads of its store get on with their work. Sockets that are handed over (a socket unit)
take the place of --listen; the one with FileDescriptorName=admin takes the place of --admin.
"""),
    ("Signals", """
SIGTERM and SIGINT end it: what was begun is finished first, within 10 seconds. The second of them
ends it at once. SIGHUP has the options read again.
"""),
]
DAEMON_EXITS = [("0", "it was asked to end"), ("1", "it could not start, or what was begun did not "
                "end in time"), ("2", "an option is wrong"), ("70", "nobody knows whether the last "
                "writes are on the disk: start it again")]
DAEMON_FILES = [("/etc/stockade/stockade.conf", "options, where it came with a Debian package"),
                ("/var/lib/stockade", "the store, likewise")]
CONFIG_ABOUT = """
The file that stockaded --config names. Each line sets one option, as name = value. What follows
on # or ; is a comment, at the beginning of a line or behind a blank. An option that may be repeated
has a line for each of its values. Flags and environment variables win over this file. A mistake in
it is told with its line, and the daemon does not start; or, on SIGHUP, goes on as it was.
"""
LIBRARY_SYNOPSIS = "#include <stockade.h>\n\ncc program.c $(pkg-config --cflags --libs stockade)"


def escape(text):
    """Text for roff: no line of it begins a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def wrap(text, width=74):
    return textwrap.wrap(" ".join(text.split()), width, break_long_words=False,
                         break_on_hyphens=False)


class Page:
    """A manual page in the making."""

    def __init__(self, name, section, about, date, version):
        self.lines = ['.\\" Made by tools/manual/write.py: change what it is made from.',
                      f'.TH {name.upper()} {section} {date} "Stockade {version}" "Stockade"',
                      ".SH NAME", f"{escape(name)} \\- {escape(about)}"]

    def section(self, title):
        self.lines.append(f".SH {title.upper()}")

    def subsection(self, title):
        self.lines.append(f'.SS "{escape(title)}"')

    def text(self, text, first=False):
        """Paragraphs; one with lines that are indented stays as it is laid out."""
        for paragraph in text.strip("\n").split("\n\n"):
            self.lines += [] if first else [".PP"]
            if re.search(r"^ ", paragraph, re.M):
                self.example(paragraph)
            else:
                self.lines += escape("\n".join(wrap(paragraph))).split("\n")
            first = False

    def example(self, text):
        """Text that stays as it is laid out."""
        self.lines += [".nf", *escape(textwrap.dedent(text)).split("\n"), ".fi"]

    def item(self, tag, text):
        self.lines += [".TP", tag]
        self.text(text, first=True)

    def options(self, options):
        for option in options:
            names = [f"\\-{option.short}"] if option.short else []
            names += [("\\-\\-" if len(option.name) > 1 else "\\-") + escape(option.name)]
            value = f" \\fI{escape(option.value)}\\fR" if option.value else ""
            self.item(", ".join(f"\\fB{name}\\fR" for name in names) + value, told(option))

    def see_also(self, *pages):
        self.section("See also")
        self.lines.append(",\n".join(f"\\fB{escape(name)}\\fR({section})"
                                     for name, section in pages))

    def write(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(self.lines) + "\n", encoding="utf-8")


def told(option):
    """The help of an option, as sentences."""
    text = option.help + "."
    if option.default:
        text += f" Default: {option.default}."
    if option.reloads:
        text += " Taken on SIGHUP, too."
    return text[0].upper() + text[1:] if text[:2].isalpha() and text.split()[0].islower() else text


def variable(option):
    return "STOCKADE_" + option.name.upper().replace("-", "_")


def daemon_page(page, daemon, rest):
    page.section("Synopsis")
    page.lines.append("\\fBstockaded\\fR [\\fIoption\\fR]...")
    page.section("Description")
    page.text(daemon.about[0], first=True)
    page.section("Options")
    page.options(daemon.options)
    page.options([helps.Option("check", "", "tell whether options, users, certificates and "
                                "addresses are in order, and start nothing"),
                  helps.Option("help", "", "list the options"),
                  helps.Option("version", "", "tell the version")])
    page.text(rest.replace("those marked [SIGHUP]", "those that are taken on SIGHUP, too,"))
    for title, text in DAEMON_REST:
        page.section(title)
        page.text(text, first=True)
    page.section("Exit status")
    for status, text in DAEMON_EXITS:
        page.item(f"\\fB{status}\\fR", text)
    page.section("Environment")
    page.text(", ".join(map(variable, daemon.options)) + ".", first=True)
    page.section("Files")
    for path, text in DAEMON_FILES:
        page.item(f"\\fI{escape(path)}\\fR", text)
    page.see_also(("stockade", 1), ("stockade.conf", 5), ("libstockade", 3))


def config_page(page, daemon):
    page.section("Description")
    page.text(CONFIG_ABOUT, first=True)
    page.section("Options")
    for option in daemon.options:
        if option.name != "config":
            page.item(f"\\fB{escape(option.name)}\\fR = \\fI{escape(option.value)}\\fR",
                      told(option))
    page.see_also(("stockaded", 8))


def command_page(page, whole, commands, rest):
    page.section("Synopsis")
    page.lines.append(escape(whole.usage))
    page.section("Description")
    page.text(whole.about[0], first=True)
    page.section("Options")
    page.options(whole.options)
    page.section("Commands")
    for command in commands:
        page.subsection(command.name)
        page.lines.append(f"\\fB{escape(command.usage)}\\fR")
        page.text("\n\n".join(command.about))
        page.options(command.options)
    for paragraph in rest.strip().split("\n\n"):
        title, _, text = paragraph.partition(": ")
        page.section({"exit codes": "Exit status"}.get(title, title))
        page.text(text, first=True)
    page.see_also(("stockaded", 8), ("libstockade", 3))


def tidy_code(code):
    """Declarations whose second lines are not indented beyond the page."""
    lines = []
    for line in code.split("\n"):
        deep = len(line) - len(line.lstrip())
        lines.append("        " + line.lstrip() if deep > 24 and not line.lstrip().startswith(
            ("/*", "*")) and "/*" not in line[:deep + 2] else line)
    return "\n".join(lines)


def library_page(page, text, entries):
    page.section("Library")
    page.lines.append("libstockade (\\fB\\-lstockade\\fR)")
    page.section("Synopsis")
    page.example(LIBRARY_SYNOPSIS)
    page.section("Description")
    page.text(headers.introduction(text), first=True)
    page.section("Functions and types")
    for entry in entries:
        types = re.findall(r"^(?:typedef )?(enum|struct) (\w+) \{", entry.code, re.M)
        page.subsection(", ".join(entry.names or [" ".join(kind) for kind in types] or ["types"]))
        page.example(tidy_code(entry.code))
        if entry.text:
            page.text(entry.text)
    page.see_also(("stockade", 1), ("stockaded", 8))


def config_file(daemon):
    """Every option as a comment."""
    lines = ["# Options of stockaded, each with its default: see stockade.conf(5). Those marked",
             "# [SIGHUP] change on `systemctl reload stockade`, the others at the next start.", ""]
    for option in daemon.options:
        if option.name == "config":
            continue
        note = " [SIGHUP]" if option.reloads else ""
        lines += [f"# {line}" for line in wrap(f"{option.value}: {option.help}{note}", 78)]
        lines += [f"#{option.name} = {option.default}".rstrip(), ""]
    return "\n".join(lines[:-1]) + "\n"


def main(programs, header_path, folder):
    programs, folder = pathlib.Path(programs), pathlib.Path(folder)
    text = pathlib.Path(header_path).read_text(encoding="utf-8")
    version = re.search(r'STK_VERSION +"(.*)"', text)[1]
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH") or os.stat(header_path).st_mtime)
    date = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).date()
    daemon, daemon_rest = helps.daemon(programs / "stockaded")
    whole, commands, rest = helps.command_line(programs / "stockade")
    entries = headers.entries(text)
    shutil.rmtree(folder, ignore_errors=True)

    def page(name, section, about, fill, *parts):
        made = Page(name, section, about, date, version)
        fill(made, *parts)
        made.write(folder / f"man/man{section}/{name}.{section}")

    page("stockaded", 8, "grants leases with fencing tokens, and checks them at the data",
         daemon_page, daemon, daemon_rest)
    page("stockade.conf", 5, "options of stockaded", config_page, daemon)
    page("stockade", 1, "leases with fencing tokens, from a shell", command_page, whole, commands,
         rest)
    page("libstockade", 3, "leases with fencing tokens, checked at the data",
         library_page, text, entries)
    for entry in entries:
        for name in entry.names:
            (folder / f"man/man3/{name}.3").write_text(".so man3/libstockade.3\n")
    completions = folder / "bash-completion/completions"
    completions.mkdir(parents=True)
    (completions / "stockaded").write_text(completion.of_daemon(daemon))
    (completions / "stockade").write_text(completion.of_command_line(whole, commands))
    config = folder / "doc/stockade/stockade.conf"
    config.parent.mkdir(parents=True)
    config.write_text(config_file(daemon))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])

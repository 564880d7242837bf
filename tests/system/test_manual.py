# SPDX-License-Identifier: Apache-2.0
"""What is made from the programs' --help and the library's header: manual pages, completion for
bash, the config file; and the systemd unit."""

import re
import shlex
import shutil
import subprocess

import pytest

from harness.limits import BUILD, HANG_SECONDS, REPO, patience
from test_library import functions

PAGES = {"stockade": 1, "libstockade": 3, "stockade.conf": 5, "stockaded": 8}
UNIT = REPO / "tools/debian/stockade.service"


def run(*words, **options):
    return subprocess.run(words, capture_output=True, text=True, check=False,
                          timeout=patience(HANG_SECONDS),
                          **options)


def page(name):
    return BUILD / f"share/man/man{PAGES[name]}/{name}.{PAGES[name]}"


def shown(name):
    """The page as a reader sees it, without how it is laid out."""
    text = re.sub(r".\x08", "", run("mandoc", "-Tascii", page(name)).stdout)
    return re.sub(r"\s+", " ", text)


def options(*program):
    """name -> (what its value is called or "", the words of the help)."""
    text = run(BUILD / program[0], *program[1:], "--help").stdout
    found = re.findall(r"^ +(?:-\w, )?--(\S+)(?: ([^\s-]\S*))?((?:\n? {2,}\S.*)(?:\n {8,}.*)*)",
                       text, re.M)
    return {name.rstrip(","): (value, " ".join(words.split())) for name, value, words in found}


def commands():
    listed = run(BUILD / "stockade", "--help").stdout.split("commands:\n")[1].split("\n\n")[0]
    return re.findall(r"^  (\S+(?: \S+)?)  +\S", listed, re.M)


@pytest.mark.parametrize("name", PAGES)
def test_a_manual_page_is_laid_out_as_mandoc_wants_it(name):
    done = run("mandoc", "-Tlint", "-Wwarning", page(name))
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("name", ["stockaded", "stockade.conf"])
def test_each_option_of_the_daemon_is_on_its_pages_with_its_help(name):
    text = shown(name)
    listed = options("stockaded")
    assert {"listen", "store", "lease", "forget-after"} <= listed.keys()
    for option, (value, words) in listed.items():
        if name == "stockaded" or option != "config":
            word = f"--{option} {value}" if name == "stockaded" else f"{option} = {value}"
            assert word in text
            assert re.split(r" \(default|;| \[", words)[0][1:] in text


def test_each_command_is_on_the_command_lines_page_with_its_options():
    text = shown("stockade")
    assert {"lock", "demo oversell", "restore"} <= set(commands())
    for command in commands():
        part = re.search(rf" {command} stockade .*?(?= [a-z ]+ stockade |$)", text)
        assert part, command
        for option, (value, words) in options("stockade", *command.split()).items():
            assert option == "help" or f"--{option} {value}".rstrip() in text, (command, option)
            assert option == "help" or words.split(" (")[0][1:] in text


def test_each_function_of_the_library_has_a_page_and_an_entry():
    source = page("libstockade").read_text().replace("\\", "")
    headings = set(re.findall(r"stk_\w+", " ".join(re.findall(r"^\.SS .*", source, re.M))))
    assert headings >= functions().keys()
    for name in functions():
        assert re.search(rf"\b{name}\(", source)
        link = page("libstockade").with_name(f"{name}.3")
        assert link.read_text() == ".so man3/libstockade.3\n"
    assert "STK_HELD: somebody else has it" in shown("libstockade"), "with the header's comments"


def test_the_config_file_holds_every_option_and_says_the_defaults(rig):
    text = (BUILD / "share/doc/stockade/stockade.conf").read_text()
    settings = dict(re.findall(r"^#(\S+) =(?: (.*))?$", text, re.M))
    assert settings.keys() | {"config"} == options("stockaded").keys()
    plain, config = rig.folder / "plain.conf", rig.folder / "stockaded.conf"
    plain.write_text(text)
    config.write_text("".join(f"{name} = {value}\n" for name, value in settings.items() if value))
    for path in (plain, config):
        client = rig.daemon("--config", path).client()
        for name, value in settings.items():
            if name not in ("listen", "admin", "store"):
                assert client("CONFIG", "GET", name)[1].decode() == value
        rig.processes[-1].close_clients()
        rig.processes[-1].stop()


def completed(program, *words):
    """What bash offers for the last word."""
    script = BUILD / "share/bash-completion/completions" / program
    line = " ".join(shlex.quote(word) for word in (program, *words))
    done = run("bash", "-u", "-c", f"source {script}; COMP_WORDS=({line}); "
               f"COMP_CWORD={len(words)}; _{program}; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_options_their_values_and_commands(tmp_path):
    assert set(completed("stockaded", "--")) == {
        f"--{name}" for name in (*options("stockaded"), "check", "help", "version")}
    assert completed("stockaded", "--store", "sqlite:x", "--unf") == ["--unfenced-writes"]
    assert completed("stockaded", "--log-level", "") == ["debug", "info", "warn", "error"]
    (tmp_path / "my.conf").touch()
    assert completed("stockaded", "--config", f"{tmp_path}/m") == [f"{tmp_path}/my.conf"]
    firsts = {command.split()[0] for command in commands()}
    assert set(completed("stockade", "")) >= firsts and completed("stockade", "repl") == ["replay"]
    assert completed("stockade", "-u", "stockade://h", "demo", "o") == ["oversell"]
    assert completed("stockade", "demo", "oversell", "--bu") == ["--buyers"]
    assert "--ttl" in completed("stockade", "lock", "sku:1", "--")
    assert completed("stockade", "get", "k", "--stock") == [], "that is another command's"


def test_the_unit_is_right_and_well_sandboxed(tmp_path):
    unit = tmp_path / "stockade.service"
    unit.write_text(UNIT.read_text().replace("/usr/bin/stockaded", str(BUILD / "stockaded")))
    sockets = shutil.copy(UNIT.with_name("stockade.socket"), tmp_path)
    done = run("systemd-analyze", "verify", "--man=no", unit, sockets)
    assert [line for line in done.stderr.splitlines() if "stockade" in line] == []
    done = run("systemd-analyze", "security", "--offline=yes", "--threshold=20", UNIT)
    assert done.returncode == 0, done.stdout


def test_the_packages_are_built_with_all_that_the_build_needs():
    needed = re.findall(r"^build +([a-z0-9-]+-dev)\b", (REPO / "tools/setup").read_text(), re.M)
    control = UNIT.with_name("control").read_text()
    built_with = re.search(r"^Build-Depends: (.*?)\n\n", control, re.M | re.S)[1]
    assert len(needed) > 9
    assert set(needed) - {"libc6-dev"} <= set(re.split(r",\s+", built_with))

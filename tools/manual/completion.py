# SPDX-License-Identifier: Apache-2.0
"""Completion for bash, of plain bash: it needs nothing but what is in it."""

import shlex

HEAD = "# bash completion for {0}. Made by tools/manual/write.py.\n\n"

DAEMON = HEAD + """\
_stockaded() {{
    local word=${{COMP_WORDS[COMP_CWORD]}}
    case ${{COMP_WORDS[COMP_CWORD - 1]}} in
{1}
    *) mapfile -t COMPREPLY < <(compgen -W {2} -- "$word") ;;
    esac
}}
complete -o default -F _stockaded stockaded
"""

COMMAND_LINE = HEAD + """\
_stockade() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} command= options={1} i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${{COMP_WORDS[i]}} in
        {2}) ((i++)) ;;
        -*) ;;
        *)
            case $command in
            {3}) command+=" ${{COMP_WORDS[i]}}" ;;
            '') command=${{COMP_WORDS[i]}} ;;
            *) break ;;
            esac
            ;;
        esac
    done
    case ${{COMP_WORDS[COMP_CWORD - 1]}} in
{4}
    esac
    case $command in
    '') options+=' '{5} ;;
{6}
    *) options= ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
}}
complete -o default -F _stockade stockade
"""


def flags(options):
    return " ".join("--" + option.name for option in options)


def values(options, ends):
    """What follows on an option that takes a value, as arms of a `case`; `ends`: what ends one."""
    arms = {}
    for option in options:
        if not option.value:
            continue
        how = "-f" if option.takes_file else f"-W {shlex.quote(' '.join(option.choices))}"
        names = ["--" + option.name] + (["-" + option.short] if option.short else [])
        arms.setdefault(how, {}).update(dict.fromkeys(names))
    return "\n".join(f"    {' | '.join(names)})\n"
                     f"        mapfile -t COMPREPLY < <(compgen {how} -- \"$word\"){ends} ;;"
                     for how, names in arms.items())


def of_daemon(daemon):
    words = flags(daemon.options) + " --check --help --version"
    return DAEMON.format("stockaded", values(daemon.options, ""), shlex.quote(words))


def of_command_line(whole, commands):
    names = [command.name.split() for command in commands]
    groups = sorted({name[0] for name in names if len(name) > 1})
    words = " ".join(dict.fromkeys(name[0] for name in names)) + " help"
    arms = [f"    {shlex.quote(command.name)}) options+=' '{shlex.quote(flags(command.options))} ;;"
            for command in commands]
    for group in groups:
        seconds = " ".join(name[1] for name in names if name[0] == group and len(name) > 1)
        arms.append(f"    {group}) options+=' '{shlex.quote(seconds)} ;;")
    with_value = [name for option in whole.options if option.value
                  for name in (f"-{option.short}" * bool(option.short), f"--{option.name}") if name]
    options = {option.name: option
               for command in (whole, *commands) for option in command.options}
    return COMMAND_LINE.format("stockade", shlex.quote(flags(whole.options)),
                               " | ".join(with_value), " | ".join(groups),
                               values(options.values(), " && return"), shlex.quote(words),
                               "\n".join(arms))

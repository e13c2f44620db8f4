#!/usr/bin/env python3
"""Writes the man page and the shell completions of `heed` from its own help, so that they always
agree with it. The files are in the repository, because a cross build cannot run the tool; a test
writes them again and compares.

Usage: make_manual.py HEED FOLDER            writes FOLDER/heed.1, heed.bash and _heed
       make_manual.py --check HEED FOLDER    ends with 1 and a line for each file that is out of date
"""
import pathlib
import re
import subprocess
import sys

import usage

OPTION = re.compile(r"  --(\S+?)(\[=(\S+)\])?( (\S.*?))?(  +(.*))?$")


class Option:
    def __init__(self, name, values, attached, text):
        self.name, self.values, self.attached, self.text = name, values, attached, text

    def words(self):
        """What a shell offers after the option: the alternatives of its first value."""
        words = self.values.split(" ")[0].split("|")
        return words if all(word.islower() for word in words) else []

    def takes_file(self):
        return "FILE" in self.values.split(" ")[0].split("|")

    def file_follows(self):
        """Whether a second value is a file."""
        return self.values.endswith(" FILE")

    def takes_folder(self):
        return self.values == "DIR"


def said(heed, *arguments):
    done = subprocess.run([heed, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{heed} {' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def read_options(lines):
    """The options in a command's help, whose texts continue on lines that are indented further."""
    options = []
    for line in lines:
        match = OPTION.match(line)
        if match:
            name, attached, values, text = match[1], match[3] or "", match[5] or "", match[7] or ""
            options.append(Option(name, attached or values, bool(attached), [text] if text else []))
        elif options and line.startswith(" " * 10) and line.strip():
            options[-1].text.append(line.strip())
    return options


def read_command(heed, name):
    usage, _, rest = said(heed, name, "--help").partition("\n")
    prose = []
    lines = rest.split("\n")
    while lines and not lines[0].startswith("  --"):
        prose.append(lines.pop(0))
    tail = [line for line in lines if line and not line.startswith(" ")]
    while prose and not prose[0]:
        prose.pop(0)
    return {
        "name": name,
        "usage": usage.removeprefix("usage: "),
        "prose": " ".join(line for line in prose + tail if line),
        "options": read_options(lines),
    }


def read(heed):
    """The commands with their summaries, and the environment and exit statuses that they share."""
    text = said(heed, "help")
    summaries = dict(re.findall(r"^  (\w+) +(.*)$", text, re.M))
    environment = re.findall(r"^(?:Environment)? +(HEED_\w+) +(.*)$", text, re.M)
    status = re.search(r"^Exit status +(.*)$", text, re.M)[1]
    commands = [read_command(heed, name) for name in summaries]
    return summaries, commands, environment, status


def roff(text):
    """Escapes text, so that roff takes nothing in it for a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + line if line[:1] in (".", "'") else line for line in text.split("\n"))


def option_title(option):
    title = f"\\fB{roff('--' + option.name)}\\fR"
    if option.attached:
        return f"{title}[={roff(option.values)}]"
    return f"{title} \\fI{roff(option.values)}\\fR" if option.values else title


def manual(version, summaries, commands, environment, status):
    out = [f'.TH HEED 1 "" "heed {version}" "User Commands"',
           ".SH NAME", roff("heed - attention on CPUs: runs it, explains it, checks its backends"),
           ".SH SYNOPSIS"]
    for command in commands:
        name = f"heed {command['name']}"
        rest = roff(command["usage"].removeprefix(name).strip())
        out += [f".B {roff(name)}", re.sub(r"(?<![-\w])[A-Za-z][\w.]*", r"\\fI\g<0>\\fR", rest), ".br"]
    out += [".B heed \\-\\-version", ".SH COMMANDS"]
    for command in commands:
        out += [f".SS {roff('heed ' + command['name'])}",
                roff(summaries[command["name"]][:1].upper() + summaries[command["name"]][1:] + "."),
                roff(command["prose"])]
        for option in command["options"]:
            out += [".TP", option_title(option), roff(" ".join(option.text))]
    out += [".SH ENVIRONMENT"]
    for name, meaning in environment:
        out += [".TP", f".B {name}", roff(meaning)]
    out += [".SH EXIT STATUS", roff(status), ".SH FILES",
            roff("Plugins are looked for in the folders of HEED_PLUGIN_PATH, then in the installed one, "
                 "heed/backends beside libheed (pkg-config --variable=plugin_dir heed).")]
    return "\n".join(line for line in out if line) + "\n"


# Readline takes a '=' for a word of its own. What follows an option that may lack its value is one only
# behind a '='.
BASH_HEAD = r"""# bash completion of heed; written by tools/make_manual.py
_heed_reply()
{
    mapfile -t COMPREPLY < <(compgen "${@:2}" -- "$1")
}
_heed_files()
{
    compopt -o filenames 2>/dev/null
    _heed_reply "$@"
}
_heed()
{
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} first='' options=''
    COMPREPLY=()
    if [ "$COMP_CWORD" = 1 ]; then
        _heed_reply "$word" -W 'NAMES help --help --version'
        return
    fi
    if [ "$word" = = ]; then
        word='' before+='='
    elif [ "$before" = = ]; then
        before=${COMP_WORDS[COMP_CWORD-2]}=
    elif [ "$COMP_CWORD" -gt 3 ]; then
        first=${COMP_WORDS[COMP_CWORD-2]}
        [ "$first" != = ] || first=${COMP_WORDS[COMP_CWORD-3]}
    fi
    case ${COMP_WORDS[1]}:$before in
"""
BASH_TAIL = """    esac
    _heed_reply "$word" -W "$options"
}
complete -F _heed heed
"""


def bash_reply(option):
    if option.words():
        return f"_heed_reply \"$word\" -W '{' '.join(option.words())}'; return"
    if option.takes_file() or option.takes_folder():
        return f"_heed_files \"$word\" -{'f' if option.takes_file() else 'd'}; return"
    return "return"


def bash(commands):
    names = " ".join(command["name"] for command in commands)
    out = []
    for command in commands:
        for option in command["options"]:
            title = f"{command['name']}:--{option.name}"
            if option.values:
                out += [f"    {title + '=' if option.attached else title + ' | ' + title + '='})",
                        f"        {bash_reply(option)} ;;"]
    out += ["    esac", "    case ${COMP_WORDS[1]}:$first in"]
    for command in commands:
        for option in command["options"]:
            if option.file_follows():
                out.append(f"    {command['name']}:--{option.name}) _heed_files \"$word\" -f; return ;;")
    out += ["    esac", "    case ${COMP_WORDS[1]} in",
            f"    help) _heed_reply \"$word\" -W '{names}'; return ;;"]
    for command in commands:
        options = " ".join("--" + option.name for option in command["options"])
        out.append(f"    {command['name']}) options='{options} --help' ;;")
    return BASH_HEAD.replace("NAMES", names) + "\n".join(out) + "\n" + BASH_TAIL


def zsh_quoted(text):
    return re.sub(r"([][:'\\])", lambda m: "'\\''" if m[0] == "'" else "\\" + m[0], text)


def zsh(summaries, commands):
    out = ["#compdef heed", "# zsh completion of heed; written by tools/make_manual.py", "_heed() {",
           "  local -a commands", "  commands=("]
    out += [f"    '{name}:{zsh_quoted(text)}'" for name, text in summaries.items()]
    out += ["    'help:how heed or a command is called'"]
    out += ["  )", "  if (( CURRENT == 2 )); then", "    _describe command commands", "    return", "  fi",
            "  case $words[2] in",
            f"  help) (( CURRENT > 3 )) || compadd {' '.join(summaries)} ;;"]
    for command in commands:
        out += [f"  {command['name']})", "    shift words; (( CURRENT-- ))", "    _arguments \\"]
        for option in command["options"]:
            text = zsh_quoted(" ".join(option.text))
            action = (f"({' '.join(option.words())})" if option.words() else
                      "_files" if option.takes_file() else
                      "_files -/" if option.takes_folder() else "")
            value = zsh_quoted(option.values.split(" ")[0])
            if option.attached:
                spec = f"--{option.name}=-[{text}]::{value}:{action}"
            elif option.values:
                second = ":FILE:_files" if option.file_follows() else ""
                spec = f"--{option.name}=[{text}]:{value}:{action}{second}"
            else:
                spec = f"--{option.name}[{text}]"
            out.append(f"      '{spec}' \\")
        out += ["      '--help[the options of this command]'", "    ;;"]
    out += ["  esac", "}", "_heed \"$@\""]
    return "\n".join(out) + "\n"


def main():
    check = sys.argv[1:2] == ["--check"]
    if check:
        del sys.argv[1]
    heed, folder = usage.words(__doc__, 2, 2)
    version = said(heed, "--version").split()[1]
    summaries, commands, environment, status = read(heed)
    if len(commands) < 4 or not environment or any(not command["options"] for command in commands):
        sys.exit("the help of heed is not what this script reads")
    files = {
        "heed.1": manual(version, summaries, commands, environment, status),
        "heed.bash": bash(commands),
        "_heed": zsh(summaries, commands),
    }
    stale = 0
    for name, text in files.items():
        path = pathlib.Path(folder) / name
        if not check:
            path.write_text(text)
        elif not path.is_file() or path.read_text() != text:
            print(f"{name} does not say what heed's help says: run tools/make_manual.py HEED tools/manual")
            stale += 1
    return stale != 0


sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""The library's header, taken apart into entries: declarations, and the comment before them."""

import dataclasses
import re


@dataclasses.dataclass
class Entry:
    names: list  # of functions; empty: it declares types only
    code: str
    text: str  # the comment, with its line breaks


def plain(comment):
    """A comment without its stars."""
    comment = re.sub(r"^/\*\s?|\s*\*/$", "", comment.strip())
    return re.sub(r"^ \* ?", "", comment, flags=re.M).strip()


def introduction(header):
    """What the comment at its top says, but for the name."""
    comments = re.findall(r"/\*.*?\*/", header.split("#ifndef STOCKADE_H")[0], re.S)
    text = plain(comments[1]).split(": ", 1)[1]
    return text[0].upper() + text[1:]


def body(header):
    """The declarations and their comments, without what is for the preprocessor; functions that
    the header defines are declared only."""
    text = header.split("#define STOCKADE_H")[1]
    text = re.sub(r"^#ifdef __cplusplus\n.*?^#endif\n", "", text, flags=re.M | re.S)
    text = re.sub(r"^#ifdef __GNUC__\n.*?^#endif\n", "", text, flags=re.M | re.S)
    text = re.sub(r"^/\*(?:(?!\*/).)*\*/\n(?=#)", "", text, flags=re.M | re.S)  # of a macro
    text = re.sub(r"^#.*\n", "", text, flags=re.M).replace("STK_CHECKED ", "")
    return re.sub(r"^(static inline [^\n]*\))\n\{\n.*?\n\}$", r"\1;", text, flags=re.M | re.S)


def entries(header):
    found = []
    text, at, fresh = body(header), 0, True
    while (match := re.compile(r"(?P<gap>\n\s*\n)|\n").match(text, at)) or at < len(text):
        if match:
            fresh = fresh or bool(match["gap"])
            at = match.end()
            continue
        at = take(text, at, found, fresh)
        fresh = False
    return [entry for entry in found if entry.code]


def take(text, at, found, fresh):
    """Take the comment or the declaration that begins at `at`; return where the next one does."""
    if text.startswith("/*", at):
        end = text.index("*/", at) + 2
        found.append(Entry([], "", plain(text[at:end])))
        return end
    end = end_of_declaration(text, at)
    code = text[at:end]
    after = re.compile(r" */\*.*?\*/", re.S).match(text, end)
    if fresh and (not found or found[-1].code):
        found.append(Entry([], "", ""))
    entry = found[-1]
    entry.code += ("\n" if entry.code else "") + code + (after[0] if after else "")
    name = re.search(r"\b(stk_\w+)\(", code)
    if name and "{" not in code:
        entry.names.append(name[1])
    return after.end() if after else end


def end_of_declaration(text, at):
    """Behind the semicolon that ends it: not one in braces, and not one in a comment."""
    depth = 0
    for token in re.compile(r"/\*.*?\*/|[{};]", re.S).finditer(text, at):
        depth += {"{": 1, "}": -1}.get(token[0], 0)
        if token[0] == ";" and depth == 0:
            return token.end()
    raise ValueError(text[at:at + 80])

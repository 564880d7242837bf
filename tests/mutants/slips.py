# SPDX-License-Identifier: Apache-2.0
"""Small defects that a program can think of: each changes a few tokens of a C file.

    comparison   < becomes <=, <= becomes <, == becomes !=, and the other way round
    number       one more, or one less
    call         a call that is a statement is left out
    arguments    two neighbours change places (the compiler refuses those of another kind)
    branch       if (...) is always taken, or never
    logic        && becomes ||, or || becomes &&
    not          a ! is dropped
    assignment   is left out; so is ++
    return       true becomes false, false becomes true, anything else becomes 0

Comments, texts and directives are left alone; so is what is said to the log, what checks an
invariant, and what only a sanitizer can miss (a free, a lock). What does not compile is nobody's
slip; whoever plants them finds out.
"""
import re
from dataclasses import dataclass

TOKEN = re.compile(r"""
    (?P<skip> /\*.*?\*/ | //[^\n]* | \#(?:[^\n\\]|\\.)* | \s+ )
  | (?P<text> "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' )
  | (?P<name> [A-Za-z_]\w* )
  | (?P<number> \d[\w.]* )
  | (?P<mark> -> | \+\+ | -- | <<= | >>= | << | >> | [-+*/%&|^<>=!]= | && | \|\| | . )
""", re.VERBOSE | re.DOTALL)
KEYWORDS = {"if", "while", "for", "switch", "return", "sizeof", "else", "do", "case", "goto"}
NOT_OURS = re.compile(r"(check|check_failed|abort|assert|_?[Ss]tatic_assert|log_\w+)$")
UNSEEN = re.compile(r"(free|\w+_free|va_start|va_end|pthread_mutex_\w+)$")
OTHERS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
          "&&": "||", "||": "&&"}
ASSIGNMENTS = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}
STEPS = {"++", "--"}
NOUGHT = {"0", "NULL", "STK_OK", "SQLITE_OK", ""}


@dataclass(frozen=True)
class Slip:
    file: str
    line: int  # the first one that it changes
    kind: str
    old: str   # the lines that it changes, blanks put together
    new: str
    begin: int  # of what it replaces, in the file's text
    end: int
    put: str

    def planted(self, text):
        return text[:self.begin] + self.put + text[self.end:]

    @property
    def key(self):
        """What it is known by where the file has other line numbers."""
        return self.file, self.old, self.new


class Source:
    """The tokens of a file. Names of tokens are their numbers."""

    def __init__(self, file, text):
        self.file, self.text = file, text
        found = [match for match in TOKEN.finditer(text) if match.lastgroup != "skip"]
        self.words = [match[0] for match in found]
        self.kinds = [match.lastgroup for match in found]
        self.spans = [match.span() for match in found]
        self.opening, self.closing, self.around, self.protected = {}, {}, [], set()
        around = ""  # the brackets that are open
        waiting = []
        for at, word in enumerate(self.words):
            self.around.append(around)
            if word in ("(", "[", "{"):
                waiting.append(at)
                around += word
            elif word in (")", "]", "}") and waiting:
                self.opening[at] = waiting.pop()
                self.closing[self.opening[at]] = at
                around = around[:-1]
        for at, word in enumerate(self.words):
            if NOT_OURS.match(word) and self.word(at + 1) == "(":
                self.protected.update(range(at, self.closing.get(at + 1, at) + 1))

    def word(self, at):
        return self.words[at] if 0 <= at < len(self.words) else ""

    def slip(self, kind, first, last, put):
        """Tokens `first` to `last` become `put`."""
        begin, end = self.spans[first][0], self.spans[last][1]
        whole = self.text.rfind("\n", 0, begin) + 1, (self.text + "\n").find("\n", end)
        old = self.text[whole[0]:whole[1]]
        new = self.text[whole[0]:begin] + put + self.text[end:whole[1]]
        return Slip(self.file, self.text.count("\n", 0, begin) + 1, kind, " ".join(old.split()),
                    " ".join(new.split()), begin, end, put)

    def slips(self):
        """All that can be made, in the order of the text."""
        for at, word in enumerate(self.words):
            if "{" in self.around[at] and at not in self.protected:
                yield from self.at_token(at, word)
                if self.begins_statement(at):
                    yield from self.at_statement(at)

    def at_token(self, at, word):
        kind, after = self.kinds[at], self.word(at + 1)
        if word in OTHERS:
            yield self.slip("logic" if word in ("&&", "||") else "comparison", at, at, OTHERS[word])
        elif word == "!":
            yield self.slip("not", at, at, "")
        elif kind == "number" and not self.declares_array(at):
            yield from self.numbers(at, word)
        elif word == "if" and after == "(":
            close = self.closing[at + 1]
            if close + 1 not in self.protected:
                inner = self.text[self.spans[at + 1][0]:self.spans[close][1]]
                yield self.slip("branch", at + 1, close, f"({inner} || true)")
                yield self.slip("branch", at + 1, close, f"({inner} && false)")
        elif word == "return":
            yield from self.returns(at)
        elif kind == "name" and after == "(" and word not in KEYWORDS:
            yield from self.swaps(at + 1)

    def declares_array(self, at):
        return (self.word(at - 1) == "[" and self.kinds[at - 2] == "name"
                and (self.kinds[at - 3] == "name" or self.word(at - 3) == "*"))

    def numbers(self, at, word):
        parts = re.fullmatch(r"(\d+)([uUlL]*)", word)
        if parts and (word[0] != "0" or parts[1] == "0"):
            for step in (-1, 1) if int(parts[1]) > 0 else (1,):
                yield self.slip("number", at, at, f"{int(parts[1]) + step}{parts[2]}")

    def returns(self, at):
        end = self.end_of_statement(at)
        value = " ".join(self.words[at + 1:end])
        if value in ("true", "false"):
            yield self.slip("return", at + 1, at + 1, "false" if value == "true" else "true")
        elif value not in NOUGHT:
            yield self.slip("return", at + 1, end - 1, "0")

    def swaps(self, opened):
        """Neighbours among the arguments that are names or numbers."""
        places, begin = [], opened + 1
        inner = begin
        while inner <= self.closing[opened]:
            if self.words[inner] == "," or inner == self.closing[opened]:
                places.append((begin, inner - 1))
                begin = inner + 1
            inner = self.closing.get(inner, inner) + 1
        for (a, b), (c, d) in zip(places, places[1:]):
            first, second = (self.text[self.spans[x][0]:self.spans[y][1]] if x <= y else ""
                             for x, y in ((a, b), (c, d)))
            simple = re.compile(r"[&*]?\w+((->|\.)\w+)*$")
            if first != second and simple.match(first) and simple.match(second):
                between = self.text[self.spans[b][1]:self.spans[c][0]]
                yield self.slip("arguments", a, d, second + between + first)

    def begins_statement(self, at):
        before = self.word(at - 1)
        if "(" in self.around[at]:
            return False
        if before == ")":
            return self.word(self.opening[at - 1] - 1) in ("if", "while", "for", "switch")
        return before in (";", "{", "}", "else", "do", ":")

    def end_of_statement(self, at):
        while at < len(self.words) and self.words[at] != ";":
            at = self.closing.get(at, at) + 1
        return at

    def at_statement(self, at):
        """A call, or an assignment, to be left out."""
        first = at
        if self.words[at:at + 3] == ["(", "void", ")"]:
            at += 3
        while self.word(at) == "*":
            at += 1
        if self.kinds[at] != "name" or self.words[at] in KEYWORDS or at in self.protected:
            return
        name, at = self.words[at], at + 1
        while self.word(at) in ("->", ".", "["):
            if self.words[at] == "[":
                at = self.closing[at] + 1
            else:
                name, at = self.words[at + 1], at + 2
        end = self.end_of_statement(at)
        called = self.word(at) == "(" and self.closing[at] + 1 == end
        if called and not UNSEEN.match(name):
            yield self.slip("call", first, end, ";")
        elif self.word(at) in ASSIGNMENTS or (self.word(at) in STEPS and at + 1 == end):
            yield self.slip("assignment", first, end, ";")


def slips_of(file, text):
    return [slip for slip in Source(file, text).slips()
            if "LCOV_EXCL" not in slip.old and slip.old != slip.new]

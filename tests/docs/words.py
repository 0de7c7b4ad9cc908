"""The mechanical part of how Prood writes: phrases that are not used, long sentences and long lines."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

COMPARED = "longer|more|less|better|other|worse|one|higher|lower|faster"
PHRASES = {
    r"; else\b": "say what the default is",
    r"\b[Ss]o many\b": "name what is counted",
    r"\blikewise\b": "say it again in full",
    rf"(?<![Tt]here )\b(?:is|are) no (?!(?:{COMPARED})\b)[a-z]+": "say “is not a …”",
    r"\bthat of\b": "name it",
    r"\b[Oo]f [a-z0-9]+ (?:it|they|we) ": "subject, verb, object",
    r"\b(?:not|never) made again\b": "say “Prood reuses …”",
    r"\b[Ww]hat is there (?:is|already)\b": "name it",
}
MOST_WORDS, MOST_LETTERS = 40, 200


def phrases(text: str) -> Iterator[str]:
    """The phrases in a text that Prood does not use."""
    for pattern, advice in PHRASES.items():
        for found in re.finditer(pattern, text):
            yield f"“{found[0]}” in “{text[max(0, found.start() - 30) : found.end() + 30]}”: {advice}"


def complaints(text: str) -> Iterator[str]:
    """Everything wrong with running text, one paragraph per line: phrases and long sentences."""
    yield from phrases(text)
    for sentence in re.split(r"(?<=[.!?:;])[)*”\"]*\s+", text):
        if len(words := sentence.split()) > MOST_WORDS:
            yield f"{len(words)} words: “{' '.join(words[:8])} …”"


def paragraphs(markdown: str) -> Iterator[str]:
    """Running text of a page: no code, no tables, no headings; links as their words."""
    text = re.sub(r"(?ms)^(?:```|~~~).*?^(?:```|~~~)$|^( {4,}\S.*)$|<!--.*?-->", "", markdown)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]*`", "code", text)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*] |\d+\. ))", text):
        if block.strip() and not block.lstrip().startswith(("|", "#")):
            yield " ".join(block.split())


def long_lines(markdown: str) -> list[int]:
    lines = enumerate(markdown.splitlines(), 1)
    return [number for number, line in lines if len(line) > MOST_LETTERS and not line.lstrip().startswith("|")]


def errors(file: Path) -> Iterator[tuple[int, str]]:
    """The texts of errors that a module raises, with {} for what is put in."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            for argument in node.exc.args[:1]:
                yield node.lineno, _text(argument)


def strings(file: Path) -> Iterator[tuple[int, str]]:
    """Every text in a module: docstrings and other strings, and comments."""
    text = file.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, " ".join(node.value.split())
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(one) for one in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    return "x"

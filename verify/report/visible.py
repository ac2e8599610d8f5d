"""Foreign text made harmless for any writer: what cannot be seen is shown as an escape."""

from __future__ import annotations


def visible(text: str) -> str:
    """The text on one line, with every letter that does not print as a backslash escape.

    That covers line ends, terminal escapes, marks that turn the direction of writing, lone
    surrogates (undecodable bytes of a file name) and all that XML 1.0 forbids. Letters of any
    script stay as they are.
    """
    return "".join(letter if letter.isprintable() else _escape(letter) for letter in text)


def visible_lines(text: str) -> list[str]:
    """The same for text of several lines, tabs expanded; no empty lines at either end."""
    return [visible(line.expandtabs()) for line in text.strip("\n").split("\n")] if text.strip("\n") else []


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")

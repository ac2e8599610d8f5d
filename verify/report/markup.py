"""HTML and SVG elements from Python values: whatever is not Markup already is escaped."""

from __future__ import annotations

from html import escape

from verify.report.visible import visible, visible_lines


class Markup(str):
    """Text that is HTML already. Only the functions here and fixed text of ours may make one."""


def element(name: str, *children: str, **attributes: str | float) -> Markup:
    """One element with its children.

    A child that is not Markup is foreign text: what does not print is shown as an escape, line ends
    stay. In an attribute's name a trailing underscore is dropped and the others become hyphens;
    floats get one decimal.
    """
    named = "".join(f' {_name(key)}="{_value(value)}"' for key, value in attributes.items())
    return Markup(f"<{name}{named}>{join(*children)}</{name}>")


def join(*children: str) -> Markup:
    """The children one after another, each escaped unless it is Markup."""
    return Markup("".join(child if isinstance(child, Markup) else _text(child) for child in children))


def _text(text: str) -> str:
    return escape("\n".join(visible_lines(text)), quote=False)


def _name(key: str) -> str:
    return key.removesuffix("_").replace("_", "-")


def _value(value: str | float) -> str:
    return f"{value:.1f}" if isinstance(value, float) else escape(visible(str(value)))

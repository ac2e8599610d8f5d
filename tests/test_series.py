"""The grammar of a series: what quilt, gbp, dpkg-source and git quiltimport read alike, and nothing else."""

from __future__ import annotations

import pytest

from stack.errors import Malformed
from stack.series import MOST, parse_series

REFUSED = {
    "empty": (b"", ""),
    "comments-only": (b"# nothing\n", ""),
    "no-final-newline": (b"0001-a.patch", ":1"),
    "no-final-newline-after-comment": (b"0001-a.patch\n# end", ":2"),
    "crlf": (b"0001-a.patch\r\n", ":1"),
    "crlf-comment": (b"# x\r\n0001-a.patch\n", ":1"),
    "bare-cr": (b"0001-a.patch\r0002-b.patch\n", ":1"),
    "duplicate": (b"0001-a.patch\n0002-b.patch\n0001-a.patch\n", ":3"),
    "trailing-blank": (b"0001-a.patch \n", ":1"),
    "trailing-tab": (b"0001-a.patch\t\n", ":1"),
    "leading-blank": (b" 0001-a.patch\n", ":1"),
    "empty-line": (b"0001-a.patch\n\n0002-b.patch\n", ":2"),
    "option": (b"0001-a.patch -p0\n", ":1"),
    "option-first": (b"-p1\n", ":1"),
    "comment-beside": (b"0001-a.patch # why\n", ":1"),
    "indented-comment": (b" # 0001-a.patch\n", ":1"),
    "absolute": (b"/etc/0001-a.patch\n", ":1"),
    "parent": (b"../0001-a.patch\n", ":1"),
    "folder": (b"sub/0001-a.patch\n", ":1"),
    "backslash": (b"sub\\0001-a.patch\n", ":1"),
    "hidden": (b".0001-a.patch\n", ":1"),
    "other-suffix": (b"0001-a.diff\n", ":1"),
    "non-ascii": ("0001-\u00e4.patch\n".encode(), ":1"),
    "nul": (b"0001-a\0.patch\n", ":1"),
    "bom": (b"\xef\xbb\xbf0001-a.patch\n", ":1"),
    "utf-16": ("0001-a.patch\n".encode("utf-16"), ":1"),
    "u2028": ("0001-a.patch\u20280002-b.patch\n".encode(), ":1"),
    "long-name": (b"0" * 300 + b".patch\n", ":1"),
    "too-many": (b"".join(b"%d.patch\n" % number for number in range(MOST + 1)), ""),
}


@pytest.mark.parametrize("data, line", REFUSED.values(), ids=REFUSED)
def test_refuses_a_series_that_appliers_read_differently(data: bytes, line: str) -> None:
    with pytest.raises(Malformed) as caught:
        parse_series(data, "series/1")
    assert str(caught.value).startswith(f"series/1{line}: ")


@pytest.mark.parametrize(
    "data, names",
    [
        (b"0001-a.patch\n", ("0001-a.patch",)),
        (b"# why\n0002-b.patch\n#\n0001-a+x_y.patch\n", ("0002-b.patch", "0001-a+x_y.patch")),
        ("# \u00e4 \u2028 comment\na.patch\n".encode(), ("a.patch",)),
    ],
    ids=["one", "comments-and-order", "non-ascii-comment"],
)
def test_reads_names_in_order(data: bytes, names: tuple[str, ...]) -> None:
    assert parse_series(data, "series/1") == names

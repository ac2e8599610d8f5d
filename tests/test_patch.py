"""The patch parser: every byte is explained, or the patch is refused with file and line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from stacks import git

from stack.digest import git_blob
from stack.errors import Environment, Malformed
from stack.patch import LARGEST, MOST_LINES, parse_patch
from stack.plan import File, change_file

ONE, TWO, NONE = b"1" * 40, b"2" * 40, b"0" * 40
EMPTY = b"e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
HEAD = b"From: A <a@b>\nDate: x\nSubject: y\n\nWhy.\n---\n"
FIRST = HEAD.count(b"\n") + 1
"""The line of the patch file where the first `diff --git` stands."""
CHANGE = b"@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"


def section(hunks: bytes = CHANGE, path: bytes = b"x", index: bytes = b"") -> bytes:
    """A change of one file; its first hunk header stands at FIRST + 4 in a patch of its own."""
    index = index or b"index %s..%s 100644\n" % (ONE, TWO)
    return b"diff --git a/%s b/%s\n%s--- a/%s\n+++ b/%s\n%s" % (path, path, index, path, path, hunks)


def new(body: bytes, path: bytes = b"x", mode: bytes = b"100644") -> bytes:
    """A new file whose body is given from the `---` line on."""
    return b"diff --git a/%s b/%s\nnew file mode %s\nindex %s..%s\n%s" % (path, path, mode, NONE, TWO, body)


NEW_BODY = b"--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+x\n"
GONE = b"diff --git a/x b/x\ndeleted file mode 100644\nindex %s..%s\n--- a/x\n+++ /dev/null\n" % (ONE, NONE)
RENAME = b"diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n"
COPY = b"diff --git a/x b/y\nsimilarity index 100%\ncopy from x\ncopy to y\n"
BINARY = b"diff --git a/b b/b\nindex %s..%s 100644\n" % (ONE, TWO)
MODE_ONLY = b"diff --git a/x b/x\nold mode 100644\nnew mode 100755\n"
MAIL = b"From %s Mon Sep 17 00:00:00 2001\n" % ONE
CONTEXT_DIFF = b"*** a/x\n--- b/x\n***************\n*** 1,3 ****\n  a\n! b\n  c\n--- 1,3 ----\n  a\n! B\n  c\n"

# What is refused: the patch, and the line that the message names.
REFUSED: dict[str, tuple[bytes, int]] = {
    "empty": (b"", 1),
    "garbage": (b"hello\n", 1),
    "nul-bytes": (b"\0" * 64 + b"\n", 1),
    "utf-16": ((HEAD + section()).decode().encode("utf-16"), FIRST + 9),
    "context-diff": (HEAD + CONTEXT_DIFF, 1),
    "normal-diff": (HEAD + b"2c2\n< b\n---\n> B\n", 1),
    "ed-diff": (HEAD + b"2c\nB\n.\n", 1),
    "plain-unified-diff": (HEAD + b"--- a/x\n+++ b/x\n" + CHANGE, 1),
    "combined-diff": (HEAD + b"diff --cc x\nindex 1,2..3\n--- a/x\n+++ b/x\n@@@ -1 -1 +1 @@@\n", 1),
    "no-head": (section(), 1),
    "no-separator": (HEAD[:-4] + section(), FIRST - 1),
    "bom-and-no-head": (b"\xef\xbb\xbf" + section(), 1),
    "crlf-patch": ((HEAD + section()).replace(b"\n", b"\r\n"), FIRST),
    "crlf-headers-only": (HEAD + section().replace(b"b/x\nindex", b"b/x\r\nindex"), FIRST),
    "crlf-index-line": (HEAD + section().replace(b"100644\n", b"100644\r\n"), FIRST + 1),
    "crlf-file-line": (HEAD + section().replace(b"+++ b/x\n", b"+++ b/x\r\n"), FIRST + 3),
    "crlf-hunk-header": (HEAD + section(CHANGE.replace(b"@@\n", b"@@\r\n")), FIRST + 4),
    "cut-off": ((HEAD + section())[:-1], FIRST + 8),
    "cut-off-after-line": ((HEAD + section())[:-3], FIRST + 4),
    "two-separators": (b"---\n" + HEAD + section(), 1),
    "separator-with-blanks": (b"Why:\n--- \t\n" + HEAD + section(), 2),
    "separator-with-tab": (b"Why:\n---\t\n" + HEAD + section(), 2),
    "separator-with-cr": (b"Why:\n---\r\n" + HEAD + section(), 2),
    "sample-diff-in-message": (b"So:\n--- a/x\n+++ b/x\n" + HEAD + section(), 2),
    "sample-hunk-in-message": (b"So:\n@@ -1 +1 @@\n" + HEAD + section(), 2),
    "sample-indented": (b"So:\n\n  --- a/x\n  +++ b/x\n" + HEAD + section(), 3),
    "sample-indented-by-tab": (b"So:\n\n\t--- a/x\n\t+++ b/x\n" + HEAD + section(), 3),
    "sample-encapsulated": (b"So:\n- --- a/x\n- +++ b/x\n" + HEAD + section(), 2),
    "sample-behind-x": (b"So:\nX--- a/x\nX+++ b/x\n" + HEAD + section(), 2),
    "sample-ed-command": (b"So:\n1,2d\n" + HEAD + section(), 2),
    "sample-normal-command": (b"So:\n3c3\n< a\n" + HEAD + section(), 2),
    "sample-index-line": (b"Index: x\n" + HEAD + section(), 1),
    "sample-git-diff-in-message": (section() + HEAD + section(), 1),
    "binary-in-message": (b"GIT binary patch\n" + HEAD + section(), 1),
    "signature": (HEAD + section() + b"-- \n2.39.5\n\n", FIRST + 9),
    "surplus-context": (HEAD + section() + b" d\n", FIRST + 9),
    "surplus-added": (HEAD + section() + b"+d\n", FIRST + 9),
    "surplus-removed": (HEAD + section() + b"-d\n", FIRST + 9),
    "surplus-empty-line": (HEAD + section() + b"\n", FIRST + 9),
    "surplus-between-hunks": (HEAD + section(CHANGE + b"stray\n@@ -9 +9 @@\n-a\n+b\n"), FIRST + 9),
    "prose-between-files": (HEAD + section() + b"prose\n" + section(path=b"y"), FIRST + 9),
    "two-mails": (HEAD + section() + MAIL + HEAD + section(path=b"y"), FIRST + 9),
    "old-count-one-less": (HEAD + section(CHANGE.replace(b"-1,3", b"-1,2")), FIRST + 4),
    "old-count-one-more": (HEAD + section(CHANGE.replace(b"-1,3", b"-1,4")), FIRST + 4),
    "new-count-one-less": (HEAD + section(CHANGE.replace(b"+1,3", b"+1,2")), FIRST + 4),
    "new-count-one-more": (HEAD + section(CHANGE.replace(b"+1,3", b"+1,4")), FIRST + 4),
    "both-counts-one-more": (HEAD + section(CHANGE.replace(b"1,3", b"1,4")), FIRST + 4),
    "count-written-as-one": (HEAD + section(b"@@ -1,1 +1,1 @@\n-a\n+b\n"), FIRST + 4),
    "count-with-zeros": (HEAD + section(b"@@ -01 +1 @@\n-a\n+b\n"), FIRST + 4),
    "count-huge": (HEAD + section(b"@@ -1,%s +1 @@\n-a\n+b\n" % (b"9" * 30)), FIRST + 4),
    "count-absurd": (HEAD + section(b"@@ -1,%s +1 @@\n-a\n+b\n" % (b"9" * 5000)), FIRST + 4),
    "line-number-absurd": (HEAD + section(b"@@ -%s +1 @@\n-a\n+b\n" % (b"9" * 5000)), FIRST + 4),
    "second-header-absurd": (HEAD + section(CHANGE + b"@@ -%s +9 @@\n-a\n+b\n" % (b"9" * 10)), FIRST + 9),
    "hunk-header-cut": (HEAD + section(b"@@ -1 +1\n-a\n+b\n"), FIRST + 4),
    "hunk-of-nothing": (HEAD + section(b"@@ -1,0 +1,0 @@\n"), FIRST + 4),
    "no-hunk": (HEAD + section(b""), FIRST + 4),
    "only-index": (HEAD + section()[: section().index(b"---")], FIRST + 2),
    "changes-nothing": (HEAD + section(b"@@ -1,2 +1,2 @@\n a\n b\n"), FIRST + 4),
    "removes-what-it-adds": (HEAD + section(b"@@ -1 +1 @@\n-a\n+a\n"), FIRST + 4),
    "empty-line-in-hunk": (HEAD + section(b"@@ -1,3 +1,3 @@\n a\n-b\n+B\n\n"), FIRST + 8),
    "bare-cr-line-in-hunk": (HEAD + section(b"@@ -1,3 +1,3 @@\n a\n-b\n+B\n\r\n"), FIRST + 8),
    "odd-line-in-hunk": (HEAD + section(CHANGE.replace(b" a\n", b"!a\n")), FIRST + 4),
    "tab-for-blank-in-hunk": (HEAD + section(CHANGE.replace(b" a\n", b"\ta\n")), FIRST + 4),
    "inserted-without-context": (HEAD + section(b"@@ -5,0 +6 @@\n+x\n"), FIRST + 4),
    "put-first-without-context": (HEAD + section(b"@@ -0,0 +1 @@\n+x\n"), FIRST + 4),
    "overlapping": (HEAD + section(CHANGE + b"@@ -3 +3 @@\n-c\n+C\n"), FIRST + 9),
    "unordered": (HEAD + section(b"@@ -9 +9 @@\n-a\n+b\n@@ -3 +3 @@\n-c\n+C\n"), FIRST + 7),
    "same-hunk-twice": (HEAD + section(CHANGE + CHANGE), FIRST + 9),
    "numberings-disagree": (HEAD + section(CHANGE.replace(b"+1,3", b"+2,3")), FIRST + 4),
    "numberings-drift": (HEAD + section(CHANGE + b"@@ -9 +8 @@\n-a\n+b\n"), FIRST + 9),
    "line-zero": (HEAD + section(b"@@ -0,1 +0,1 @@\n-a\n+b\n"), FIRST + 4),
    "marker-twice": (HEAD + section(b"@@ -1 +1 @@\n-a\n+b\n" + b"\\ No newline at end of file\n" * 2), FIRST + 8),
    "marker-first": (HEAD + section(b"@@ -1 +1 @@\n\\ No newline at end of file\n-a\n+b\n"), FIRST + 5),
    "marker-in-mid-file": (
        HEAD + section(b"@@ -1,2 +1,2 @@\n-a\n+b\n\\ No newline at end of file\n c\n"), FIRST + 4,
    ),
    "marker-before-last-hunk": (
        HEAD + section(b"@@ -1 +1 @@\n-a\n+b\n\\ No newline at end of file\n@@ -9 +9 @@\n-a\n+b\n"), FIRST + 4,
    ),
    "marker-localized": (HEAD + section(b"@@ -1 +1 @@\n-a\n+b\n\\ Kein Zeilenumbruch am Dateiende.\n"), FIRST + 7),
    "marker-with-more": (HEAD + section(b"@@ -1 +1 @@\n-a\n+b\n\\ No newline at end of file!\n"), FIRST + 7),
    "marker-crlf": (HEAD + section(b"@@ -1 +1 @@\n-a\n+b\n\\ No newline at end of file\r\n"), FIRST + 7),
    "rename": (HEAD + RENAME, FIRST),
    "rename-same-name": (HEAD + RENAME.replace(b"b/y", b"b/x"), FIRST + 1),
    "copy": (HEAD + COPY, FIRST),
    "copy-same-name": (HEAD + COPY.replace(b"b/y", b"b/x"), FIRST + 1),
    "rewrite": (HEAD + section(index=b"dissimilarity index 99%%\nindex %s..%s 100644\n" % (ONE, TWO)), FIRST + 1),
    "symlink-new": (HEAD + new(NEW_BODY, mode=b"120000"), FIRST + 1),
    "symlink-changed": (HEAD + section(index=b"index %s..%s 120000\n" % (ONE, TWO)), FIRST + 1),
    "file-becomes-symlink": (HEAD + MODE_ONLY.replace(b"100755", b"120000"), FIRST + 2),
    "submodule-new": (HEAD + new(NEW_BODY.replace(b"+x", b"+Subproject commit 1"), mode=b"160000"), FIRST + 1),
    "submodule-changed": (HEAD + section(index=b"index %s..%s 160000\n" % (ONE, TWO)), FIRST + 1),
    "mode-odd": (HEAD + new(NEW_BODY, mode=b"100600"), FIRST + 1),
    "mode-setuid": (HEAD + new(NEW_BODY, mode=b"104755"), FIRST + 1),
    "mode-missing": (HEAD + section(index=b"index %s..%s\n" % (ONE, TWO)), FIRST + 2),
    "mode-blank": (HEAD + section(index=b"index %s..%s \n" % (ONE, TWO)), FIRST + 1),
    "mode-twice": (HEAD + section(index=MODE_ONLY[19:] + b"index %s..%s 100644\n" % (ONE, TWO)), FIRST + 4),
    "mode-half": (HEAD + b"diff --git a/x b/x\nold mode 100644\n", FIRST + 2),
    "mode-and-new": (HEAD + MODE_ONLY + b"new file mode 100644\n", FIRST + 4),
    "mode-same": (HEAD + MODE_ONLY.replace(b"100755", b"100644"), FIRST + 3),
    "nothing-but-names": (HEAD + b"diff --git a/x b/x\n", FIRST + 1),
    "new-without-index": (HEAD + b"diff --git a/x b/x\nnew file mode 100644\n", FIRST + 2),
    "binary-note": (HEAD + BINARY + b"Binary files a/b and b/b differ\n", FIRST + 2),
    "binary-payload": (HEAD + BINARY + b"GIT binary patch\nliteral 1\nIcmZPo000310RR91\n\n", FIRST + 2),
    "binary-before-text": (HEAD + BINARY + b"Binary files a/b and b/b differ\n" + section(), FIRST + 2),
    "binary-after-text": (HEAD + section() + BINARY + b"Binary files a/b and b/b differ\n", FIRST + 11),
    "abbreviated-ids": (HEAD + section(index=b"index 1111111..2222222 100644\n"), FIRST + 1),
    "one-id-abbreviated": (HEAD + section(index=b"index %s..2222222 100644\n" % ONE), FIRST + 1),
    "sha256-ids": (HEAD + section(index=b"index %s..%s 100644\n" % (b"1" * 64, b"2" * 64)), FIRST + 1),
    "upper-case-ids": (HEAD + section(index=b"index %s..%s 100644\n" % (b"A" * 40, TWO)), FIRST + 1),
    "ids-of-three": (HEAD + section(index=b"index %s..%s..%s 100644\n" % (ONE, TWO, TWO)), FIRST + 1),
    "no-index": (HEAD + section().replace(b"index %s..%s 100644\n" % (ONE, TWO), b""), FIRST + 1),
    "absent-but-no-new-file": (HEAD + section(index=b"index %s..%s 100644\n" % (NONE, TWO)), FIRST + 2),
    "new-with-lines-before": (
        HEAD + new(b"--- /dev/null\n+++ b/x\n@@ -1 +1 @@\n-a\n+x\n"), FIRST + 5,
    ),
    "new-in-two-hunks": (
        HEAD + new(NEW_BODY + b"@@ -0,0 +2 @@\n+y\n"), FIRST + 5,
    ),
    "new-not-from-its-start": (HEAD + new(NEW_BODY.replace(b"-0,0 +1", b"-4,0 +5")), FIRST + 5),
    "gone-not-from-its-start": (HEAD + GONE + b"@@ -2 +1,0 @@\n-b\n", FIRST + 5),
    "new-from-a-file": (HEAD + new(NEW_BODY.replace(b"/dev/null", b"a/x")), FIRST + 3),
    "gone-keeps-lines": (HEAD + GONE + b"@@ -1,2 +1 @@\n-a\n b\n", FIRST + 5),
    "gone-to-a-file": (HEAD + GONE.replace(b"/dev/null", b"b/x") + b"@@ -1 +0,0 @@\n-a\n", FIRST + 4),
    "gone-without-hunk": (HEAD + GONE, FIRST + 5),
    "names-with-space": (HEAD + section(path=b"x y"), FIRST),
    "names-with-non-ascii": (HEAD + section(path="\u00e4".encode()), FIRST),
    "names-quoted": (HEAD + section().replace(b"a/x b/x", b'"a/\\303\\244" "b/\\303\\244"'), FIRST),
    "names-with-quote": (HEAD + section(path=b'x"y'), FIRST),
    "names-with-tab": (HEAD + section(path=b"x\ty"), FIRST),
    "names-with-cr": (HEAD + section(path=b"x\ry"), FIRST),
    "names-differ": (HEAD + section().replace(b"b/x\nindex", b"b/y\nindex"), FIRST),
    "names-without-prefix": (HEAD + section().replace(b"a/x b/x", b"x x"), FIRST),
    "names-with-mnemonic-prefix": (HEAD + section().replace(b"a/x b/x", b"i/x w/x"), FIRST),
    "name-of-another-file": (HEAD + section().replace(b"+++ b/x", b"+++ b/y"), FIRST + 3),
    "old-name-of-another-file": (HEAD + section().replace(b"--- a/x", b"--- a/y"), FIRST + 2),
    "name-with-time": (HEAD + section().replace(b"--- a/x", b"--- a/x\t2026-01-01"), FIRST + 2),
    "path-parent": (HEAD + section(path=b"../x"), FIRST),
    "path-parent-inside": (HEAD + section(path=b"d/../../x"), FIRST),
    "path-absolute": (HEAD + section(path=b"/etc/x"), FIRST),
    "path-git": (HEAD + section(path=b".git/config"), FIRST),
    "path-git-upper": (HEAD + section(path=b"sub/.GIT/config"), FIRST),
    "path-journal": (HEAD + section(path=b".torch-musa-patches/record"), FIRST),
    "path-empty": (HEAD + section(path=b""), FIRST),
    "case-twins": (HEAD + section() + section(path=b"X"), FIRST),
    "file-and-folder": (HEAD + section() + section(path=b"x/y"), FIRST),
    "one-file-twice": (HEAD + section() + section(), FIRST + 9),
    "one-file-new-twice": (HEAD + new(NEW_BODY) + new(NEW_BODY), FIRST + 7),
    "mode-only-and-change": (HEAD + MODE_ONLY + section(), FIRST + 3),
    "symlink-then-through-it": (
        HEAD + new(NEW_BODY.replace(b"b/x", b"b/l"), b"l", b"120000") + new(NEW_BODY, b"l/x"), FIRST + 1,
    ),
    "crlf-stray-after-hunk": (HEAD + section() + b"\r\n", FIRST + 9),
}  # fmt: skip


@pytest.mark.parametrize("data, line", REFUSED.values(), ids=REFUSED)
def test_refuses_what_it_cannot_explain(data: bytes, line: int) -> None:
    with pytest.raises(Malformed) as caught:
        parse_patch(data, "p.patch")
    assert str(caught.value).startswith(f"p.patch:{line}: "), str(caught.value)


@pytest.mark.parametrize(
    "message",
    [
        b"A --- in prose, and ---more\n",
        b"diffs, 3d and 12 a\n",
        b"> --- a/x\n> +++ b/x\n",
        b"1d printer\n",
        b"- a bullet\n",
    ],
    ids=["dashes", "near-commands", "quoted-sample", "number-and-letter", "bullet"],
)
def test_takes_a_message_that_no_applier_misreads(message: bytes) -> None:
    patch = parse_patch(message + HEAD + section(), "p.patch")
    assert patch.head == message + HEAD and len(patch.files) == 1


@pytest.mark.parametrize("data", [b"x" * (LARGEST + 1), b"\n" * (MOST_LINES + 1)], ids=["bytes", "lines"])
def test_refuses_a_patch_larger_than_the_limit(data: bytes) -> None:
    with pytest.raises(Malformed, match="a patch has at most"):
        parse_patch(data, "p.patch")


# What is accepted: the file before and after, None for absent; git makes the diff.
UGLY = b"one\n-- x\n++ y\n@@ -1 +1 @@\n--- a/x\n+++ b/x\ndiff --git a/x b/x\n\\ No newline at end of file\n"
ROUND_TRIPS: dict[str, tuple[bytes | None, bytes | None]] = {
    "change": (b"a\nb\nc\n", b"a\nB\nc\n"),
    "new": (None, b"a\nb\n"),
    "gone": (b"a\nb\n", None),
    "new-empty": (None, b""),
    "gone-empty": (b"", None),
    "emptied": (b"a\nb\n", b""),
    "filled": (b"", b"a\n"),
    "no-newline-both": (b"a\nb", b"a\nB"),
    "no-newline-old": (b"a\nb", b"a\nb\n"),
    "no-newline-new": (b"a\nb\n", b"a\nb"),
    "no-newline-context": (b"a\nb\nc", b"A\nb\nc"),
    "no-newline-made-longer": (b"a\nb", b"a\nb\nc"),
    "new-no-newline": (None, b"a"),
    "gone-no-newline": (b"a", None),
    "crlf-payload": (b"a\r\nb\r\nc\r\n", b"a\r\nB\r\nc\r\n"),
    "crlf-to-lf": (b"a\r\nb\r\n", b"a\nb\n"),
    "crlf-last-line-cut": (b"a\r\nb\r", b"a\r\nb\r\n"),
    "bare-cr": (b"a\rb\nc\rd\n", b"a\rB\nc\rd\n"),
    "only-cr-lines": (b"\r\n\r\nx\n\r\n", b"\r\n\r\ny\n\r\n"),
    "u2028": ("a\u2028b\nc\n".encode(), "a\u2028b\nC\u2028\n".encode()),
    "u0085-utf8": ("a\u0085b\nc\n".encode(), "a\u0085b\nC\n".encode()),
    "u0085-latin-1": (b"a\x85b\nc\n", b"a\x85B\nc\n"),
    "vt-ff": (b"a\vb\nc\fd\n\x1c\x1d\x1e\n", b"a\vb\nC\fd\n\x1c\x1d\x1f\n"),
    "latin-1": (b"\xe4\n\xf6\n", b"\xe4\n\xd6\n"),
    "invalid-utf-8": (b"\xff\xfe\xc3\n", b"\xff\xfe\xc3\xc3\n"),
    "bom-payload": (b"\xef\xbb\xbfa\nb\n", b"\xef\xbb\xbfa\nB\n"),
    "removed-line-like-a-header": (b"a\n-- x\nb\n", b"a\nb\n"),
    "added-line-like-a-header": (b"a\nb\n", b"a\n++ x\nb\n"),
    "removed-header-pair": (b"-- a/x\n++ b/x\nc\n", b"c\n"),
    "lines-of-a-diff": (UGLY, UGLY.replace(b"one", b"two")),
    "a-patch-of-a-patch": (b"a\n", HEAD + section() + b"-- \n2.39.5\n\n"),
    "a-patch-taken-out": (HEAD + section(), b"a\n"),
    "trailing-blanks": (b"a \nb\t\n", b"a \nb\t\t\n"),
    "empty-lines": (b"\n\n\n\nx\n\n\n", b"\n\n\n\ny\n\n\n"),
    "two-hunks": (b"".join(b"%d\n" % n for n in range(40)), b"".join(b"%d\n" % (n % 30) for n in range(40))),
    "equal-functions": (b"def f():\n  a\n\n" * 9, b"def f():\n  a\n\n" * 4 + b"  b\n" + b"def f():\n  a\n\n" * 5),
    "long-line": (b"x" * 300_000 + b"\na\n", b"x" * 300_000 + b"\nb\n"),
    "section-heading-with-bytes": (
        b"def f\xff\t \r():\n" + b" a\n" * 9 + b"x\n", b"def f\xff\t \r():\n" + b" a\n" * 9 + b"y\n",
    ),
}  # fmt: skip


def _diff(where: Path, before: bytes | None, after: bytes | None, path: str = "x", *options: str) -> bytes:
    """Return git's diff of a file in a repository made at where."""
    git(where, "init", "-q")
    for data in (before, after):
        target = where / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        if data is not None:
            target.write_bytes(data)
        if data is before:
            git(where, "add", "-A")
            git(where, "commit", "-q", "--allow-empty", "-m", "x")
    git(where, "add", "-A")
    return HEAD + git(where, "diff", "--cached", "--full-index", "--no-renames", *options)


@pytest.mark.parametrize("before, after", ROUND_TRIPS.values(), ids=ROUND_TRIPS)
def test_reads_what_git_writes_forward_and_back(tmp_path: Path, before: bytes | None, after: bytes | None) -> None:
    (change,) = parse_patch(_diff(tmp_path, before, after), "p.patch").files
    old = None if before is None else File(before, False)
    new = None if after is None else File(after, False)
    assert change_file(old, change, False, "x") == new
    assert change_file(new, change, True, "x") == old


@pytest.mark.parametrize("context", ["-U0", "-U1", "-U8"])
def test_context_of_any_width_leads_to_the_right_bytes_or_is_refused(tmp_path: Path, context: str) -> None:
    before = b"".join(b"%d\n" % n for n in range(40))
    after = before.replace(b"7\n", b"x\n", 1).replace(b"31\n", b"")
    (change,) = parse_patch(_diff(tmp_path, before, after, "x", context), "p.patch").files
    assert change_file(File(before, False), change, False, "x") == File(after, False)


def test_zero_context_insertion_is_refused(tmp_path: Path) -> None:
    data = _diff(tmp_path, b"a\nb\n", b"a\nx\nb\n", "x", "-U0")
    with pytest.raises(Malformed, match="no context"):
        parse_patch(data, "p.patch")


@pytest.mark.parametrize("name", ["a b", "\u00e4", 'q"q', "back\\slash", "tab\there"])
def test_names_that_git_quotes_or_leaves_ambiguous_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Malformed, match=rf"^p.patch:{FIRST}: "):
        parse_patch(_diff(tmp_path, b"a\n", b"b\n", name), "p.patch")


def test_utf_16_and_binary_payload_are_refused(tmp_path: Path) -> None:
    data = _diff(tmp_path, "a\n".encode("utf-16"), "b\n".encode("utf-16"))
    with pytest.raises(Malformed, match="not supported"):
        parse_patch(data, "p.patch")


def _chmod(mode: int, data: bytes) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        path.write_bytes(data)
        path.chmod(mode)

    return change


@pytest.mark.parametrize(
    "before, after",
    [((0o644, b"a\n"), (0o755, b"a\n")), ((0o755, b"a\n"), (0o644, b"b\n")), (None, (0o755, b"a\n")),
     (None, (0o755, b"")), ((0o755, b"a\n"), None)],
    ids=["mode-only", "mode-and-text", "new-executable", "new-empty-executable", "gone-executable"],
)  # fmt: skip
def test_executable_bits_are_read(
    tmp_path: Path, before: tuple[int, bytes] | None, after: tuple[int, bytes] | None
) -> None:
    git(tmp_path, "init", "-q")
    target = tmp_path / "x"
    if before:
        _chmod(*before)(target)
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "x")
    _chmod(*after)(target) if after else target.unlink()
    git(tmp_path, "add", "-A")
    data = HEAD + git(tmp_path, "diff", "--cached", "--full-index")
    (change,) = parse_patch(data, "p.patch").files
    old, new = (File(one[1], one[0] == 0o755) if one else None for one in (before, after))
    assert change_file(old, change, False, "x") == new
    assert change_file(new, change, True, "x") == old


def test_two_plain_new_files_in_a_row_are_read() -> None:
    blob = git_blob(b"x\n").encode()
    body = new(NEW_BODY).replace(TWO, blob) + new(NEW_BODY.replace(b"b/x", b"b/y"), b"y").replace(TWO, blob)
    assert [change.path for change in parse_patch(HEAD + body, "p.patch").files] == ["x", "y"]


def test_names_made_to_be_split_in_two_ways_are_read_as_one() -> None:
    path = b"b/x-b/b"
    assert parse_patch(HEAD + section(path=path), "p").files[0].path == path.decode()


def test_a_missing_unidiff_is_an_environment_with_a_tip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "unidiff", None)
    with pytest.raises(Environment) as caught:
        parse_patch(HEAD + section(), "p.patch")
    assert "python3-unidiff" in caught.value.tip

"""OUT, the folder that export and wheel write into."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from stack.errors import Environment, Usage
from stack.tree import Tree


@contextmanager
def out_folder(out: str, make: bool) -> Iterator[Tree]:
    """Open OUT; where it may be and is absent, make it, and take it away again when nothing comes of it."""
    made = make and _made(out)
    try:
        with Tree(out) as tree:
            yield tree
    except BaseException:
        if made:
            with suppress(OSError):  # a journal that is left keeps it
                os.rmdir(out)
        raise


def _made(out: str) -> bool:
    try:
        os.mkdir(out)
    except FileExistsError:
        return False
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Usage(f"{out}: cannot be made: {error.strerror}", "The folder that holds it must be there.") from error
    except OSError as error:
        raise Environment(f"{out}: cannot be made: {error.strerror}") from error
    return True

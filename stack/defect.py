"""Say from the source of `torch_musa/__init__.py` where it stands on the defect: re-exported, forwarded, or neither."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from stack.bindings import Source

FLAG_NAME = "_initialized"


class Reading(NamedTuple):
    """What the source says.

    reexport_line: line on which the flag is bound at import time, or None.
    forwarder_line: line of the module-level `__getattr__` that answers the flag with its current value, or None.
    names: the other names that are bound to attributes of `core/_lazy_init`, sorted.
    error: why the source could not be read, with the line where there is one, or empty.
    """

    reexport_line: int | None
    forwarder_line: int | None
    names: tuple[str, ...]
    error: str = ""

    @property
    def fixed(self) -> bool:
        """Whether the flag is forwarded and no snapshot of it hides the forwarder."""
        return not self.error and self.reexport_line is None and self.forwarder_line is not None


def read_init(source: bytes) -> Reading:
    """Read the bytes of a `torch_musa/__init__.py`. Never raises, never runs them: trouble is `Reading.error`."""
    from stack.bindings import read_source

    try:
        module = read_source(source)
    except SyntaxError as error:
        return Reading(None, None, (), f"line {error.lineno or '?'}: {error.msg}")
    except (ValueError, RecursionError, MemoryError) as error:
        return Reading(None, None, (), f"cannot be read as Python: {error}")
    return Reading(reexport_line(module), _forwarder_line(module), _names(module))


def reexport_line(module: Source) -> int | None:
    """Return the line of the last binding that keeps a value of the flag in the module, or None.

    That is any binding of the flag's name, and an import of the flag under another name.
    """
    from stack.bindings import Reach
    from stack.symbols import FLAG

    kept: dict[str, int] = {}
    for binding in module.bindings:
        if binding.how == "del":
            kept.pop(binding.name, None)
        elif binding.reach is not Reach.NEVER and (
            binding.name == FLAG_NAME or binding.how == "import" and binding.value.text == FLAG
        ):
            kept[binding.name] = binding.line
    return max(kept.values(), default=None)


def _forwarder_line(module: Source) -> int | None:
    from stack.answer import Reply, follow
    from stack.symbols import Kind

    function = module.scope.module.get("__getattr__")
    if function is None or function.kind is not Kind.FUNCTION or function.payload.decorator_list:
        return None
    followed = follow(function.payload, FLAG_NAME, module.scope)
    sound = followed.answer.reply is Reply.FLAG and not followed.writes
    return int(function.payload.lineno) if sound else None


def _names(module: Source) -> tuple[str, ...]:
    from stack.symbols import HANDLE

    found = {name for name, value in module.scope.module.items() if value.text.rpartition(".")[0] == HANDLE}
    return tuple(sorted(found - {FLAG_NAME}))

"""A Python that has imported all of apply.py, and runs its commands in children: a start that costs nothing.

Each child stops before the command, for a tracer to attach. One request a line, JSON, on standard input:
{"argv", "env", "output": file, "unproven": bool, "traced": bool}; answered by {"pid"}, then {"code"}.
{"imports": [...]} imports modules that a command imports in mid-run.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import itertools
import json
import os
import signal
import sys
import tempfile
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import apply


def _command(request: dict[str, Any]) -> int:
    """Be the command, in the child."""
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir("/")
    tempfile.tempdir = request["env"]["TMPDIR"]  # else Python tries it out with a file of its own
    # Names that are the same in every run, so that strace can be told of them.
    tempfile._name_sequence = iter(f"scratch{number}" for number in itertools.count())  # type: ignore[attr-defined]
    if request["unproven"]:
        _leave_proofs_out()
    if request["traced"]:
        os.kill(os.getpid(), signal.SIGSTOP)
    code = apply.main(request["argv"])
    if request.get("modules"):
        with open(request["modules"], "w") as file:
            json.dump(sorted(sys.modules), file)
    return code


def _leave_proofs_out() -> None:
    import verify.command
    from stack.commands import Proof
    from stack.installed import guard
    from verify import port_command

    def proven(*_: object) -> Proof:
        return Proof(True, "  its proof was left out")

    verify.command.prover = lambda level: proven
    port_command.prove = proven  # type: ignore[assignment]
    guard.holders = lambda installed: guard.Holders((), 0)  # other processes come and go


def _answer(**what: int) -> None:
    print(json.dumps(what), flush=True)


def serve() -> None:
    """Answer requests to the end of the input."""
    gc.disable()  # as apply.py does
    for line in sys.stdin:
        request = json.loads(line)
        for name in request.get("imports", ()):
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        if "imports" in request:
            continue
        pid = os.fork()
        if not pid:
            try:
                code = _command(request)
            except BaseException:
                code = 99
            os._exit(code)
        if request["traced"]:
            os.waitpid(pid, os.WUNTRACED)
        _answer(pid=pid)
        _answer(code=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


if __name__ == "__main__":
    serve()

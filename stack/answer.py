"""What a module's `__getattr__` answers for a given name, read from its source: the flag, another value, an exception.

The function is followed statement by statement for one concrete name, so that every honest way to write it is
understood alike. Where the source does not decide, both ways are followed, and only one answer counts as known.
"""

from __future__ import annotations

import ast
from enum import Enum
from typing import NamedTuple

from stack.bindings import Binding, Reach, at_import, dynamic_writes
from stack.symbols import FLAG, Kind, Scope, Value, import_values, source_of, truth_of, value_of


class Reply(str, Enum):
    """The ways a call can end."""

    FLAG = "the current flag"
    VALUE = "another value"
    RAISES = "an exception"
    UNKNOWN = "unknown"


class Answer(NamedTuple):
    """How a call ends: for RAISES the text is the exception's name, else what is returned."""

    reply: Reply
    text: str
    line: int


class Call(NamedTuple):
    """One call that is followed: its scope, the names that it declares global, the writes seen on the way."""

    scope: Scope
    declared: set[str]
    writes: list[Binding]


class Following(NamedTuple):
    """The answer for one name, and the writes to module names that it takes to get there."""

    answer: Answer
    writes: tuple[Binding, ...]


def follow(function: ast.FunctionDef, asked: str, scope: Scope) -> Following:
    """Return what `function(asked)` answers in a module whose names are `scope.module`."""
    local = {}
    positional = [*function.args.posonlyargs, *function.args.args]
    for parameter, default in zip(reversed(positional), reversed(function.args.defaults), strict=False):
        local[parameter.arg] = at_import(value_of(default, scope))
    if positional:
        local[positional[0].arg] = Value(Kind.CONSTANT, repr(asked), asked)
    call = Call(Scope(scope.module, local), set(), [])
    answer = _run(function.body, call) or Answer(Reply.VALUE, "None, by falling off the end", function.lineno)
    return Following(answer, tuple(call.writes))


def _run(body: list[ast.stmt], call: Call) -> Answer | None:
    for statement in body:
        answer = _step(statement, call)
        if answer is not None:
            return answer
    return None


def _step(statement: ast.stmt, call: Call) -> Answer | None:
    if isinstance(statement, ast.Return):
        return _returned(statement, call)
    if isinstance(statement, ast.Raise):
        return _raised(statement, call)
    if isinstance(statement, ast.If):
        return _branch(statement, call)
    if isinstance(statement, ast.Match):
        return _match(statement, call)
    if isinstance(statement, ast.Try):
        return _try(statement, call)
    call.writes.extend(dynamic_writes(statement, call.scope))
    return _plain(statement, call)


def _plain(statement: ast.stmt, call: Call) -> Answer | None:
    if isinstance(statement, ast.With):
        return _run(statement.body, call)
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        call.scope.local.update({name: value for name, value, _ in import_values(statement)})
    elif isinstance(statement, ast.Global):
        call.declared.update(statement.names)
    elif isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        _assign(statement, call)
    elif isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        call.scope.local[statement.name] = Value(Kind.UNKNOWN, statement.name)
    elif not isinstance(statement, (ast.Expr, ast.Pass, ast.Assert)):
        return Answer(Reply.UNKNOWN, f"a {type(statement).__name__.lower()} statement", statement.lineno)
    return None


def _assign(statement: ast.Assign | ast.AnnAssign | ast.AugAssign, call: Call) -> None:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    value = value_of(statement.value, call.scope) if statement.value else Value(Kind.UNKNOWN, "nothing")
    for target in targets:
        if isinstance(target, ast.Name) and target.id not in call.declared:
            call.scope.local[target.id] = value
        elif not isinstance(target, ast.Tuple):
            _note_write(target, value, call)


def _note_write(target: ast.expr, value: Value, call: Call) -> None:
    call.writes.append(Binding(source_of(target), target.lineno, "assignment", value, Reach.LATER))


def _returned(statement: ast.Return, call: Call) -> Answer:
    if statement.value is None:
        return Answer(Reply.VALUE, "None", statement.lineno)
    call.writes.extend(dynamic_writes(statement, call.scope))
    value = value_of(statement.value, call.scope)
    if value.kind is Kind.PATH and value.text == FLAG:
        return Answer(Reply.FLAG, source_of(statement.value), statement.lineno)
    reply = Reply.UNKNOWN if value.kind is Kind.UNKNOWN else Reply.VALUE
    detail = "" if value.text == source_of(statement.value) else f" ({value.text})"
    return Answer(reply, source_of(statement.value) + detail, statement.lineno)


def _raised(statement: ast.Raise, call: Call) -> Answer:
    if statement.exc is None:
        return Answer(Reply.UNKNOWN, "a bare raise", statement.lineno)
    value = value_of(statement.exc, call.scope)
    known = value.kind in (Kind.PATH, Kind.INSTANCE)
    return Answer(
        Reply.RAISES if known else Reply.UNKNOWN,
        value.text.removeprefix("builtins."),
        statement.lineno,
    )


def _branch(statement: ast.If, call: Call) -> Answer | None:
    truth = truth_of(statement.test, call.scope)
    if truth is not None:
        return _run(statement.body if truth else statement.orelse, call)
    return _either([_run(statement.body, call), _run(statement.orelse, call)], statement)


def _either(answers: list[Answer | None], statement: ast.stmt) -> Answer | None:
    if len({answer and answer[:2] for answer in answers}) == 1:
        return answers[0]
    return Answer(Reply.UNKNOWN, "a condition that the source does not decide", statement.lineno)


def _match(statement: ast.Match, call: Call) -> Answer | None:
    subject = value_of(statement.subject, call.scope)
    for case in statement.cases:
        fits = _fits(case.pattern, subject, call)
        fits = fits if case.guard is None or not fits else truth_of(case.guard, call.scope)
        if fits is None:
            return Answer(Reply.UNKNOWN, "a match that the source does not decide", statement.lineno)
        if fits:
            return _run(case.body, call)
    return None


def _fits(pattern: ast.pattern, subject: Value, call: Call) -> bool | None:
    if isinstance(pattern, ast.MatchAs) and pattern.pattern is None:
        if pattern.name:
            call.scope.local[pattern.name] = subject
        return True
    if isinstance(pattern, ast.MatchOr):
        fits = [_fits(inner, subject, call) for inner in pattern.patterns]
        return True if True in fits else (None if None in fits else False)
    if isinstance(pattern, ast.MatchValue) and subject.kind is Kind.CONSTANT:
        value = value_of(pattern.value, call.scope)
        return bool(value.payload == subject.payload) if value.kind is Kind.CONSTANT else None
    return None


def _try(statement: ast.Try, call: Call) -> Answer | None:
    answer = _run(statement.body, call)
    if answer is None:
        answer = _run(statement.orelse, call)
    elif answer.reply is Reply.RAISES:
        answer = _caught(statement, answer, call)
    elif answer.reply is not Reply.FLAG and any(_swallows(h) for h in statement.handlers):
        answer = Answer(Reply.UNKNOWN, "a try whose handlers may answer instead", statement.lineno)
    return _run(statement.finalbody, call) or answer


def _caught(statement: ast.Try, raised: Answer, call: Call) -> Answer | None:
    for handler in statement.handlers:
        names = {n.id for n in ast.walk(handler.type) if isinstance(n, ast.Name)} if handler.type else {"BaseException"}
        if names & {raised.text, "Exception", "BaseException"}:
            answer = _run(handler.body, call)
            rethrown = answer is not None and answer.text == "a bare raise"
            return raised if rethrown else answer
    return raised


def _swallows(handler: ast.ExceptHandler) -> bool:
    return not any(isinstance(node, ast.Raise) for node in handler.body)

"""Kill each command at every call to the file system, and let every such call fail: nothing is lost, nothing is left.

    python tests/faults.py [--where DIR] [--faults KILL,EIO] [--again] [ROW ...]
    python tests/faults.py --point LABEL ROW     # one line of the report again
    python tests/faults.py --prepare DIR ROW     # the world of a row, to repeat it by hand with real strace

A run under strace records the calls, from the first that touches the world of the command on: what comes before, and
in between, is Python reading its own modules. Then there is one run for each call on the world, and each fault, on a
fresh copy of the world. A fault is a SIGKILL before the call is done, or an error in its place. The commands run in
children of a Python that has all modules already; that they make the calls of the real command is checked first.
Results are kept in build/faults; what they have, for the same sources, is not run again unless asked. Exit code 1 if
anything is found.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from stack.paths import JOURNAL  # noqa: E402
from tests.faults_lib import calls, table  # noqa: E402
from tests.faults_lib.calls import ERRORS, KILL, Call, Shim  # noqa: E402
from tests.faults_lib.judge import Verdict, Wholes, judge, whole  # noqa: E402
from tests.faults_lib.picture import PLACE, take, with_indexes_as_text  # noqa: E402
from tests.faults_lib.table import ROWS, Row  # noqa: E402

KEPT = ROOT / "build" / "faults"
WORKERS = 2
RACES = "races"


class Point(NamedTuple):
    """One fault at one call. mode: `main`, `git` (a git that the command started) or `all` (it, and the command)."""

    call: Call
    fault: str
    mode: str

    @property
    def label(self) -> str:
        return f"{self.mode}:{self.call.process}:{self.call.name}:{self.call.path}:{self.call.number}:{self.fault}"


class Desk:
    """A place where one run after the other is made."""

    def __init__(self, row: Row, where: Path, origin: Path) -> None:
        self.row, self.world, self.origin = row, where / "world", origin
        self.log = where / "log"
        where.mkdir(parents=True)
        self.shim = Shim(where / "bin", shutil.which("git") or "git")
        self.path = f"{self.shim.folder}:{os.environ['PATH']}" if row.gits else os.environ["PATH"]
        self.server = calls.Server()
        self.fresh()
        self.server.learn(table.command(row, self.world), table.environment(self.world, self.path), row.unproven)
        self.fresh()

    def close(self) -> None:
        self.server.__exit__()

    def fresh(self) -> None:
        """Make the world anew."""
        shutil.rmtree(self.world, ignore_errors=True)
        subprocess.run(["cp", "-a", str(self.origin), str(self.world)], check=True)  # -a: with times and hard links
        for journal in self.world.rglob(JOURNAL):
            _as_if_written_here(journal)

    def run(self, log: bool = False, point: Point | None = None) -> calls.Ran:
        """Run the command, recorded or with a fault in its own calls."""
        how = {"log": self.log} if log or point else {}
        at = {"at": point.call, "fault": point.fault} if point else {}
        env = table.environment(self.world, self.path)
        return self.server.run(table.command(self.row, self.world), env, unproven=self.row.unproven, **how, **at)

    def marks(self) -> list[str]:
        """The places in the world that a command is there for; Python itself looks into $HOME."""
        return [f"@/{name}" for name in ("tree", "stacks", "out", "upstream", "dest", "venv", "torch_musa-", "tmp")]

    def record(self) -> tuple[list[Call], list[Call]]:
        """Run the command whole; return its own calls that count, and those of its gits that can change something."""
        self.shim.plan("record")
        ran = self.run(log=True)
        assert ran.code == 0, ran.said
        mine = calls.parse(self.log.read_text(errors="replace"), 0, self.world)
        gits = [call for call in self.shim.recorded(self.world) if call.writes and "@" in call.text]
        return calls.from_the_first(mine, self.marks()), gits

    def inject(self, point: Point) -> calls.Ran:
        """Run the command with one fault."""
        if point.mode == "main":
            self.shim.plan("none")
            return self.run(point=point)
        self.shim.plan("one" if point.mode == "git" else "all", point.call, point.fault)
        return self.run()

    def is_hit(self, point: Point) -> bool:
        """Whether the fault came at the call that was meant: chance has a part in how often pipes are read."""
        log = self.log if point.mode == "main" else self.shim.folder / "log"
        lines = log.read_text(errors="replace").split("\n") if log.exists() else []
        ended = (" = ?", " <unfinished ...>") if point.fault == KILL else ("(INJECTED)",)
        found = [line for line in lines if line.endswith(ended)]
        want = calls.places(point.call.text)
        return len(found) == 1 and calls.places(found[0].replace(str(self.world), "@")) == want

    def try_out(self, point: Point, wholes: Wholes) -> Verdict:
        """Run and judge one fault, and leave the world as at first."""
        ran = self.inject(point)
        for _ in range(5):
            if self.is_hit(point):
                break
            self.fresh()
            ran = self.inject(point)
        else:
            self.fresh()
            return Verdict("never hit", ("what the command does at this point differs from run to run",))
        verdict = judge(self.row, self.world, point.call, point.fault, ran, wholes, self.server)
        if verdict.outcome != "before" or verdict.problems:
            self.fresh()
        return verdict


def _as_if_written_here(journal: Path) -> None:
    """Let a journal in a copy name its own inode: a journal that came with a copy is not obeyed."""
    for file in (journal / "record", journal / "git"):
        if file.exists():
            times = file.stat().st_atime_ns, file.stat().st_mtime_ns
            file.write_bytes(PLACE.sub(b"place %d" % journal.stat().st_ino, file.read_bytes()))
            os.utime(file, ns=times)


def points_of(mine: Sequence[Call], gits: Sequence[Call], faults: Sequence[str]) -> Iterator[Point]:
    """Yield every fault to try: at the calls on the world, and at the output of the command."""
    for call in mine:
        if "@" in call.text or call.name == "write":
            yield from (Point(call, fault, "main") for fault in faults)
    for call in gits:
        yield from (Point(call, fault, "git") for fault in faults)
        if KILL in faults:
            yield Point(call, KILL, "all")


class Result(NamedTuple):
    """What a row came to."""

    row: str
    calls: int
    counts: Counter[str]
    outcomes: Counter[str]
    problems: tuple[str, ...]
    seconds: float


def run_row(row: Row, where: Path, faults: Sequence[str], again: bool, label: str) -> Result:
    """Try every fault of one row."""
    started = time.monotonic()
    origin = where / "origin"
    table.make(row, origin)
    desks = [Desk(row, where / f"desk-{number}", origin) for number in range(WORKERS)]
    mine, gits, wholes, real_calls = observe(desks[0])
    points = list(points_of(mine, gits, faults))
    if label:
        points = [point for point in points if point.label == label]
    known = _kept(row) if not again and not label else {}
    free: queue.SimpleQueue[Desk] = queue.SimpleQueue()
    for desk in desks:
        free.put(desk)

    def work(point: Point) -> Verdict:
        if point.label in known:
            return known[point.label]
        desk = free.get()
        try:
            verdict = desk.try_out(point, wholes)
        finally:
            free.put(desk)
        _keep(row, point, verdict)
        return verdict

    with ThreadPoolExecutor(WORKERS) as pool:
        verdicts = list(pool.map(work, points))
    for desk in desks:
        desk.close()
    problems = [
        "\n    ".join([f"{point.label}: {point.call.text[:160]}", *verdict.problems, repeat(row, point, real_calls)])
        for point, verdict in zip(points, verdicts, strict=True)
        if verdict.problems
    ]
    counts = Counter("kill" if point.fault == KILL else "fail" for point in points)
    outcomes = Counter(verdict.outcome for verdict in verdicts)
    return Result(row.name, len(mine) + len(gits), counts, outcomes, tuple(problems), time.monotonic() - started)


class Observed(NamedTuple):
    """A whole run: the calls of the command and of its gits, the pictures before and after, and the real calls."""

    mine: list[Call]
    gits: list[Call]
    wholes: Wholes
    real: dict[Call, Call]


def observe(desk: Desk) -> Observed:
    """Run the row's command whole."""
    before = take(desk.world)
    mine, gits = desk.record()
    after = {path: shot for path, shot in take(desk.world).items()}
    as_text = with_indexes_as_text(desk.world, after)
    wholes = Wholes(before, after, as_text)
    assert whole(desk.row, desk.world, wholes) == "after" and after != before
    assert not [path for path in after if path.startswith("tmp/")], "a whole run leaves something in $TMPDIR"
    strays = [call.text for call in mine if call.writes and not _inside(call, desk)]
    assert not strays, f"the command writes outside its world: {strays}"
    desk.fresh()
    return Observed(mine, gits, wholes, _real(desk, mine))


PROBE = re.compile(r"@/tmp/\w{8}[>\"]")
"""The file by which Python finds out whether $TMPDIR can be written to."""


def _real(desk: Desk, mine: Sequence[Call]) -> dict[Call, Call]:
    """Return each call on the world as the real command makes it, which Python starts anew: the same, but counted
    together with those of the start. Nothing for a command whose proof is left out."""
    if desk.row.unproven:
        return {}
    argv = ["strace", "-qq", "-y", "-o", str(desk.log), "-e", calls.trace_option(), *real(desk.row, desk.world)]
    calls.run(argv, table.environment(desk.world, desk.path))
    text = desk.log.read_text(errors="replace")
    found = [call for call in calls.from_the_first(calls.parse(text, 0, desk.world), desk.marks()) if "@" in call.text]
    found = [call for call in found if not PROBE.search(call.text)]
    ours = [call for call in mine if "@" in call.text]
    assert [call.name for call in found] == [call.name for call in ours], "the real command makes other calls"
    desk.fresh()
    return dict(zip(ours, found, strict=True))


def real(row: Row, world: Path) -> list[str]:
    """Return the command line of the real command."""
    return [sys.executable, "-B", str(ROOT / "apply.py"), *table.command(row, world)]


def _inside(call: Call, desk: Desk) -> bool:
    """Whether what a call writes is in the world, or is the command's output."""
    named = ("@", "<pipe:", "<socket:", "/dev/null", "(deleted)", f"{desk.server.folder.name}/output")
    return any(name in call.text for name in named)


def repeat(row: Row, point: Point, real_calls: dict[Call, Call]) -> str:
    """Return what repeats a fault: by this script, and by hand."""
    again = f"python tests/faults.py --point {point.label} {row.name}"
    call = real_calls.get(point.call)
    if point.mode != "main" or call is None:
        return f"{again}    # {calls.injection(point.call, point.fault)} in process {point.call.process}"
    world = Path("/tmp/world")
    env = " ".join(f'{key}="{value}"' for key, value in table.environment(world, "$PATH").items())
    line = " ".join([*calls.strace(call, point.fault, "/dev/stderr", world), *real(row, world)])
    return f"{again}\n    python tests/faults.py --prepare {world} {row.name} && env -i {env} {line}"


def _version() -> str:
    """Return a digest of all sources: a result is of these alone."""
    files = [ROOT / "apply.py", *sorted(ROOT.glob("stack/**/*.py")), *sorted(ROOT.glob("verify/**/*.py"))]
    files += [Path(__file__), *sorted(ROOT.glob("tests/faults_lib/*.py"))]
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


VERSION = _version()


def _kept(row: Row) -> dict[str, Verdict]:
    found: dict[str, Verdict] = {}
    file = KEPT / f"{row.name}.jsonl"
    for line in file.read_text().splitlines() if file.exists() else []:
        version, label, outcome, problems = json.loads(line)
        if version == VERSION and not problems:
            found[label] = Verdict(outcome, ())
    return found


def _keep(row: Row, point: Point, verdict: Verdict) -> None:
    KEPT.mkdir(parents=True, exist_ok=True)
    with (KEPT / f"{row.name}.jsonl").open("a") as file:
        file.write(json.dumps([VERSION, point.label, *verdict]) + "\n")


def races(where: Path) -> None:
    """Let fifty runs at once meet twenty times, and a directory flip for a minute; raises AssertionError."""
    import test_races

    tree = table.copy_specimen(where / "tree")
    came: Counter[tuple[int, str]] = Counter()
    for _ in range(ROUNDS):
        came += test_races.fifty(tree, where)
    print(f"{ROUNDS} times fifty runs at once, apply and unapply: {_told(came)}", flush=True)
    (where / "flip").mkdir()
    print(f"a directory that flips for {FLIP_SECONDS} s: {_told(test_races.flipped(where / 'flip', FLIP_SECONDS))}")


ROUNDS, FLIP_SECONDS = 20, 60


def _told(came: Counter[tuple[int, str]]) -> str:
    return ", ".join(f"{outcome} (code {code}) {count}" for (code, outcome), count in sorted(came.items()))


def show(result: Result) -> None:
    """Print one row of the table, then what was found."""
    outcomes = ", ".join(f"{name} {count}" for name, count in sorted(result.outcomes.items()))
    print(
        f"{result.row:16} {result.calls:6} {result.counts['kill']:6} {result.counts['fail']:6} {len(result.problems):6}"
        f" {result.seconds:7.0f} s  {outcomes}",
        flush=True,
    )
    for problem in result.problems[:20]:
        print(f"  {problem}", flush=True)


def main(argv: Sequence[str]) -> int:
    """Run the rows; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--where", help="a folder for the worlds; a file system in memory saves time")
    parser.add_argument("--faults", default=",".join((KILL, *ERRORS)), help="which: KILL, EIO, ...")
    parser.add_argument("--again", action="store_true", help="also what build/faults has a result of")
    parser.add_argument("--point", metavar="LABEL", default="", help="one fault alone, by its name in the report")
    parser.add_argument("--prepare", metavar="DIR", help="make the world of ROW in DIR, and nothing else")
    names = ", ".join([RACES, *(row.name for row in ROWS)])
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"any of: {names}")
    asked = parser.parse_args(argv)
    unknown = set(asked.rows) - {row.name for row in ROWS} - {RACES}
    if unknown or shutil.which("strace") is None:
        parser.error(f"no such row: {', '.join(unknown)}" if unknown else "strace is not installed")
    rows = [row for row in ROWS if not asked.rows or row.name in asked.rows]
    if asked.prepare:
        table.make(rows[0], Path(asked.prepare))
        return 0
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    if not asked.rows or RACES in asked.rows:
        with tempfile.TemporaryDirectory(prefix="faults-", dir=asked.where or memory) as folder:
            races(Path(folder))
    print(f"{'command':16} {'calls':>6} {'kills':>6} {'fails':>6} {'wrong':>6} {'time':>9}  what was left")
    found = 0
    for row in rows:
        with tempfile.TemporaryDirectory(prefix="faults-", dir=asked.where or memory) as folder:
            result = run_row(row, Path(folder), asked.faults.split(","), asked.again, asked.point)
        show(result)
        found += len(result.problems)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

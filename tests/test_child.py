"""A child's result is what it wrote on its pipe.

Whatever else happens is a sentence, and nothing stays behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from verify import child

HEADER = "import json, os, sys, time\nfd = int(sys.argv[1])\nown = os.getcwd()\nos.chdir(sys.argv[2])\n"
VALUE = 'os.write(fd, b\'{"value": [1, "two"]}\\n\')\n'


def run(tmp_path: Path, body: str, seconds: float = 20.0, **more: Any) -> child.Result:
    """Run a child script with this body."""
    script = tmp_path / "script.py"
    script.write_text(HEADER + body)
    return child.run(sys.executable, script, [str(tmp_path)], seconds=seconds, **more)


def gone(pid: int) -> bool:
    """Say whether a process is gone, or dead and not yet reaped, within two seconds."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.02)
    return False


def test_the_value_comes_from_the_pipe_and_not_from_stdout(tmp_path: Path) -> None:
    result = run(tmp_path, 'print(\'{"value": "wrong"}\')\n' + VALUE)
    assert result.value == [1, "two"]
    assert result.problem == ""
    assert "wrong" in result.output


@pytest.mark.parametrize(
    ("body", "problem", "output"),
    [
        (
            "print('so far'); raise ValueError('broken')\n",
            "ended with exit code 1",
            "ValueError: broken",
        ),
        ("print('nothing')\n", "ended without a result", "nothing"),
        ("os.write(fd, b'hello\\n')\n", "wrote something that is no result: hello", ""),
        ("os.write(fd, b'[1]\\n')\n", "wrote something that is no result: [1]", ""),
        (VALUE + "os.kill(os.getpid(), 9)\n", "killed by SIGKILL", ""),
        (VALUE + "os._exit(3)\n", "ended with exit code 3", ""),
        ("os.write(fd, b'{\"value\": 1')\n", "ended without a result", ""),
    ],
    ids=["raises", "silent", "garbage", "no-message", "killed", "bad-exit", "cut-off"],
)
def test_a_failed_child_is_a_sentence_with_its_last_words(tmp_path: Path, body: str, problem: str, output: str) -> None:
    result = run(tmp_path, body)
    assert result.value is None
    assert result.problem == problem
    assert output in result.reason()


def test_an_absent_interpreter_is_a_sentence(tmp_path: Path) -> None:
    result = child.run(str(tmp_path / "nopython"), tmp_path / "s.py", [], seconds=5)
    assert result.problem.startswith(f"cannot start {tmp_path / 'nopython'}: ")


def test_the_time_limit_ends_the_whole_group(tmp_path: Path) -> None:
    body = "pid = os.fork()\nif pid: open('grandchild', 'w').write(str(pid))\ntime.sleep(60)\n"
    start = time.monotonic()
    result = run(tmp_path, body, seconds=0.7)
    assert result.problem == "stopped after its time limit of 0.7 s"
    assert time.monotonic() - start < 10
    assert gone(int((tmp_path / "grandchild").read_text()))


def test_a_grandchild_that_holds_the_pipe_does_not_keep_us(tmp_path: Path) -> None:
    body = "pid = os.fork()\nif not pid: time.sleep(60)\nopen('grandchild', 'w').write(str(pid))\n" + VALUE
    start = time.monotonic()
    assert run(tmp_path, body).value == [1, "two"]
    assert time.monotonic() - start < 10
    assert gone(int((tmp_path / "grandchild").read_text()))


def test_the_environment_is_the_allowed_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "PYTEST_ADDOPTS", "GIT_DIR", "SECRET_TOKEN"):
        monkeypatch.setenv(name, "/nonexistent")
    monkeypatch.setenv("MUSA_VISIBLE_DEVICES", "1")
    body = "os.write(fd, (json.dumps({'value': dict(os.environ)}) + '\\n').encode())\n"
    seen = run(tmp_path, body).value
    assert seen["MUSA_VISIBLE_DEVICES"] == "1"
    assert seen["LC_ALL"] == "C.UTF-8"
    assert not {"PYTHONPATH", "PYTEST_ADDOPTS", "GIT_DIR", "SECRET_TOKEN"} & set(seen)


def test_no_bytecode_is_written(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("")
    assert run(tmp_path, "import beside\n" + VALUE).value == [1, "two"]
    assert not (tmp_path / "__pycache__").exists()


def test_progress_arrives_in_order(tmp_path: Path) -> None:
    seen: list[str] = []
    body = "for text in 'abc': os.write(fd, (json.dumps({'progress': text}) + '\\n').encode())\n" + VALUE
    assert run(tmp_path, body, progress=seen.append).value == [1, "two"]
    assert seen == ["a", "b", "c"]


def test_a_large_value_arrives_whole(tmp_path: Path) -> None:
    body = "line = json.dumps({'value': 'x' * 3_000_000}).encode() + b'\\n'\n"
    body += "while line: line = line[os.write(fd, line):]\n"
    assert run(tmp_path, body).value == "x" * 3_000_000


def test_an_exception_in_the_caller_ends_the_child(tmp_path: Path) -> None:
    def fail(_: str) -> None:
        raise RuntimeError("the caller gave up")

    body = "open('child', 'w').write(str(os.getpid()))\n"
    body += "os.write(fd, b'{\"progress\": 1}\\n')\ntime.sleep(60)\n"
    with pytest.raises(RuntimeError, match="gave up"):
        run(tmp_path, body, progress=fail)
    assert gone(int((tmp_path / "child").read_text()))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_neither_child_nor_grandchild(tmp_path: Path, number: int) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        HEADER + "pid = os.fork()\nif pid: open('pids.new', 'w').write(f'{os.getpid()} {pid}')\n"
        "if pid: os.rename('pids.new', 'pids')\ntime.sleep(60)\n"
    )
    program = (
        "import signal, sys; from pathlib import Path; from verify import child\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # nohup lets it be ignored
        f"child.run(sys.executable, Path({str(script)!r}), [{str(tmp_path)!r}], seconds=60)\n"
    )
    root = Path(child.__file__).parents[1]
    parent = subprocess.Popen(
        [sys.executable, "-B", "-c", program],
        cwd=root,
        stderr=subprocess.PIPE,
        env={**os.environ, "LC_ALL": "C"},
    )
    for _ in range(500):
        if (tmp_path / "pids").exists():
            break
        time.sleep(0.02)
    parent.send_signal(number)
    _, errors = parent.communicate(timeout=20)
    assert b"KeyboardInterrupt" in errors
    assert all(gone(int(pid)) for pid in (tmp_path / "pids").read_text().split())


def test_it_runs_in_a_folder_of_its_own_that_goes_away(tmp_path: Path) -> None:
    body = "import tempfile\nopen(own + '/core', 'w').close()\ntempfile.mkdtemp()\n"
    body += "report = [own, tempfile.gettempdir(), os.listdir(own)]\n"
    body += "os.write(fd, (json.dumps({'value': report}) + '\\n').encode())\n"
    own, temporary, entries = run(tmp_path, body).value
    assert own == temporary and "core" in entries and len(entries) == 2
    assert not Path(own).exists()

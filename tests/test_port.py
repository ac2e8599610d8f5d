"""A tree that no pin matches gets a stack that is proven and placed rightly, or is refused with the reason."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from stack.commands import How, Proof, apply
from stack.digest import sha256
from stack.errors import Exit, Refused, StackError, Usage
from stack.port import UNKNOWN_COMMIT, torch_of
from stack.store import Store
from tests.conftest import INIT, LAZY_INIT, NEW_TEST, OLD_TEST, STACKS, RunCli, copy_specimen
from tests.port_bench import ALL, BLOCK, EDIT, FOUR, OLD, OLDER_BLOCK, ONE_LINE, Bench, Text, swap
from tests.stacks import git
from tests.test_commits import patched_specimen, repository
from verify.lint_sums import check_sums
from verify.port_command import lint_files


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


PORTED: dict[str, Text] = {
    "30-lines-above": lambda text: text.replace("import sys\n", "import sys\n" + EDIT * 30, 1),
    "one-line-2-names": lambda text: OLD + swap(ONE_LINE.format("_lazy_init, _initialized"))(text),
    "one-line-3-names": lambda text: OLD + swap(ONE_LINE.format("_lazy_init, _initialized, _is_in_bad_fork"))(text),
    "one-line-4-names": swap(OLDER_BLOCK),
    "black-at-another-width": swap(ONE_LINE.format(ALL)),
    "reordered": swap(ONE_LINE.format("musart, is_initialized, _initialized, _lazy_init, _lazy_call, _is_in_bad_fork")),
    "comment-in-the-block": lambda text: text.replace(
        "    _initialized,\n", "    # the flag\n    _initialized,  # stale\n"
    ),
    "extra-name": lambda text: text.replace("    musart,\n)", "    musart,\n    DeferredCallError,\n)"),
    "alias-of-another": lambda text: text.replace("    musart,\n)", "    musart,\n    _lazy_call as _later,\n)"),
    "alias-of-the-flag": lambda text: text.replace("    _initialized,\n", "    _initialized as _x,\n"),
    "line-between": lambda text: text.replace(BLOCK, EDIT + BLOCK + EDIT),
    "statement-before-the-block": lambda text: text.replace(BLOCK, "_forked = True\n" + BLOCK),
    "absolute": lambda text: text.replace("from .core._lazy_init", "from torch_musa.core._lazy_init"),
    "two-blocks": swap(
        ONE_LINE.format("_lazy_init, _lazy_call, _initialized")
        + ONE_LINE.format("_initialized, _is_in_bad_fork, is_initialized, musart")
    ),
    "another-import-of-the-module": swap(ONE_LINE.format("musart, _lazy_call") + ONE_LINE.format(FOUR)),
}


@pytest.mark.parametrize("change", PORTED.values(), ids=PORTED)
def test_ports_with_proof(bench: Bench, change: Text) -> None:
    """Proven red without the stack and green with it, at the static and the import level; clean by lint."""
    bench.edit(INIT, change)
    outcome = bench.port()
    assert (outcome.exit, outcome.outcome) == (Exit.DONE, "ported")
    store = Store(str(bench.stacks))
    assert lint_files("2.7.2", bench.files()) == []
    assert list(check_sums(store)) == []
    apply(str(bench.tree), store, How("2.7.2"))
    after = (bench.tree / INIT).read_text()
    assert after.count("def __getattr__(name):\n") == 1 and "    _initialized" not in after.split("def __getattr__")[0]
    apart = copy_specimen(bench.tree.parent / "apart") / INIT
    assert after.count(EDIT) == change(apart.read_text()).count(EDIT)


NOT_PORTED: dict[str, tuple[Text, str]] = {
    "flag-used-later": (
        lambda text: text + "if _initialized:\n    print()\n",
        "reads the flag by its bare name.*py:128",
    ),
    "semicolon": (swap(ONE_LINE.format(FOUR).strip() + "; x = 1\n"), "semicolon"),
    "in-a-try": (swap("try:\n    " + ONE_LINE.format(FOUR) + "except ImportError:\n    pass\n"), "another way"),
    "own-getattr": (
        lambda text: text + "def __getattr__(name):\n    raise AttributeError(name)\n",
        "binds __getattr__",
    ),
    "crlf": (lambda text: text.replace("\n", "\r\n"), "ends in CR LF"),
    "no-defect": (lambda text: text.replace("    _initialized,\n", ""), "has not the defect"),
    "syntax-error": (lambda text: text + "def f(:\n", "cannot be read as Python"),
    "no-final-newline": (
        lambda text: text.replace(BLOCK, "") + "\n" + BLOCK.rstrip("\n"),
        "no newline.*patch-whitespace",
    ),
}


@pytest.mark.parametrize(("change", "reason"), NOT_PORTED.values(), ids=NOT_PORTED)
def test_refuses_with_the_reason(bench: Bench, change: Text, reason: str) -> None:
    bench.edit(INIT, change)
    with pytest.raises(Refused, match=f"(?s){reason}"):
        bench.port()
    assert bench.untouched


def test_a_port_that_is_not_proven_is_not_written(bench: Bench) -> None:
    """The fork writes the forwarder away in another module: no edit of ours can know, the proof does."""
    bench.edit("torch_musa/core/ops.py", lambda text: text + "import torch_musa\ntorch_musa._initialized = False\n")
    bench.edit(INIT, lambda text: EDIT + text)
    outcome = bench.port()
    assert (outcome.exit, outcome.outcome) == (Exit.UNPROVEN, "not proven")
    assert "refuted" in outcome.message and bench.untouched


def test_a_port_is_not_proven_where_nothing_is_imported_after_the_names(bench: Bench) -> None:
    bench.edit(INIT, lambda text: text.replace(BLOCK, "") + "\n" + BLOCK)
    outcome = bench.port()
    assert outcome.exit is Exit.UNPROVEN and bench.untouched
    assert "no module is imported after the names" in outcome.message


HEALED = """
class _Healed(type(sys)):
    @property
    def _initialized(self):
        from torch_musa.core import _lazy_init
        return _lazy_init._initialized

sys.modules[__name__].__class__ = _Healed
"""


def test_a_proof_that_was_not_red_before_counts_for_nothing(bench: Bench) -> None:
    """The package puts the flag right behind its own back: the import level is green without the stack."""
    bench.edit(INIT, lambda text: text + HEALED)
    outcome = bench.port()
    assert outcome.exit is Exit.UNPROVEN and "is not refuted" in outcome.message and bench.untouched


@pytest.mark.parametrize("release", ["2.7.1+specimen", "2.9.1.post1+specimen"])
def test_two_derivations_agree_to_the_byte(tmp_path: Path, release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ported from the other release's stack, a known base gets the very files of its own stack."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1796040000")  # the day of the stacks: 2026-11-30
    bench = Bench(tmp_path)
    shutil.rmtree(bench.tree)
    copy_specimen(bench.tree, release.removesuffix("+specimen"))
    known = bench.files(release)
    shutil.rmtree(bench.stacks / "patches" / release)
    (bench.stacks / "series" / release).unlink()
    assert bench.port(release).outcome == "ported"
    ported = bench.files(release)
    about = f"patches/{release}/release.json"
    facts = [json.loads(files.pop(about)) for files in (known, ported)]
    assert ported == known
    assert [fact["directories"] for fact in facts] == [["tests/unittest/core"]] * 2
    assert facts[0]["fixed_in"] == facts[1]["fixed_in"]


def test_the_update_is_dated_today_and_never_before_the_patch(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.edit(INIT, lambda text: EDIT + text)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    bench.port("2.7.2")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1796126400")
    bench.edit(INIT, lambda text: EDIT + text)
    bench.port("2.7.3")
    path = "0001-forward-the-initialization-flag.patch"
    first, second = ((bench.stacks / f"patches/{name}/{path}").read_text() for name in ("2.7.2", "2.7.3"))
    assert "\nLast-Update: 2026-11-30\n" in first and "\nLast-Update: 2026-12-01\n" in second
    for text in (first, second):
        assert "\nDate: Mon, 30 Nov 2026 12:00:00 +0000\n" in text
        assert "\nApplied-Upstream: 2.11.0.post2" in text


def test_refuses_a_known_base_and_a_patched_one(bench: Bench) -> None:
    with pytest.raises(Refused, match=r"is 2\.7\.1\+specimen by digest \(pristine\): it has a stack"):
        bench.port()
    apply(str(bench.tree), Store(str(bench.stacks)), How())
    with pytest.raises(Refused, match=r"by digest \(applied\): it has a stack"):
        bench.port()
    assert bench.untouched


def test_refuses_a_fixed_tree(bench: Bench) -> None:
    bench.edit(INIT, lambda text: patched_specimen("2.7.1+specimen")[INIT].decode() + EDIT)
    with pytest.raises(Refused, match="applied to a fork, needs no stack"):
        bench.port()


def test_refuses_a_tree_that_is_patched_but_for_its_test(bench: Bench) -> None:
    apply(str(bench.tree), Store(str(bench.stacks)), How())
    bench.edit(OLD_TEST, lambda text: text + EDIT)
    with pytest.raises(Refused, match="needs no stack: the stack is in"):
        bench.port()


NAMES = {
    "known": ("2.7.1+specimen", Refused),
    "path": ("../2", Usage),
    "no-digit": ("main", Usage),
    "empty": ("", Usage),
}


@pytest.mark.parametrize(("name", "error"), NAMES.values(), ids=NAMES)
def test_refuses_a_name_that_is_taken_or_none(bench: Bench, name: str, error: type[StackError]) -> None:
    bench.edit(INIT, lambda text: EDIT + text)
    with pytest.raises(error):
        bench.port(name)
    assert bench.untouched


def test_refuses_a_folder_that_is_in_the_way(bench: Bench) -> None:
    bench.edit(INIT, lambda text: EDIT + text)
    (bench.stacks / "patches/2.7.2").mkdir()
    (bench.stacks / "patches/2.7.2/release.json").write_text("{}\n")
    with pytest.raises(Refused, match="release.json exists already"):
        bench.port(prove=_pass)


def _pass(root: str, name: str, files: object) -> Proof:
    return Proof(True, "not proven here")


def test_refuses_another_tree(bench: Bench) -> None:
    shutil.rmtree(bench.tree / "torch_musa")
    with pytest.raises(Refused, match="neither torch_musa/__init__.py nor"):
        bench.port()


def _other_lazy_init(text: str) -> str:
    return text.replace("put off until somebody needs one", "put off until one needs one")


def test_an_unknown_lazy_init_is_refused_unless_its_digest_is_named(bench: Bench) -> None:
    bench.edit(LAZY_INIT, _other_lazy_init)
    digest = sha256((bench.tree / LAZY_INIT).read_bytes())
    with pytest.raises(Refused, match=f"{LAZY_INIT} is one that no pin knows .sha256 {digest}") as caught:
        bench.port()
    assert f"--accept-lazy-init {digest}" in caught.value.tip and "as its last step" in caught.value.tip
    with pytest.raises(Refused, match=f"has the digest {digest}, not 00"):
        bench.port(accept="0" * 64)
    assert bench.untouched
    outcome = bench.port(accept=digest)
    assert outcome.outcome == "ported" and "accepted by its digest" in outcome.data["look_at"][0]


def test_an_accepted_lazy_init_must_still_carry_the_fix(bench: Bench) -> None:
    early = "        _initialized = True\n        _refuse_bad_fork()\n"
    bench.edit(LAZY_INIT, lambda text: text.replace("        _refuse_bad_fork()\n", early, 1))
    outcome = bench.port(accept=sha256((bench.tree / LAZY_INIT).read_bytes()))
    assert outcome.exit is Exit.UNPROVEN and "as its last step" in outcome.message and bench.untouched


def test_an_accepted_lazy_init_that_rebinds_another_name_is_refused(bench: Bench) -> None:
    bench.edit(LAZY_INIT, lambda text: text + "\ndef _swap():\n    global musart\n    musart = None\n")
    with pytest.raises(Refused, match=f"takes musart too, which {LAZY_INIT}:127 rebinds"):
        bench.port(accept=sha256((bench.tree / LAZY_INIT).read_bytes()))
    assert bench.untouched


TESTS: dict[str, tuple[Callable[[Bench], object], str, list[str]]] = {
    "edited": (
        lambda b: b.edit(OLD_TEST, lambda text: text + EDIT),
        f"{OLD_TEST}: is one that no stack knows",
        [NEW_TEST],
    ),
    "removed": (lambda b: (b.tree / OLD_TEST).unlink(), f"{OLD_TEST}: is not in this tree", [NEW_TEST]),
    "there-already": (lambda b: (b.tree / NEW_TEST).write_text("x = 1\n"), f"{NEW_TEST}: exists already", [OLD_TEST]),
}


@pytest.mark.parametrize(("spoil", "told", "carried"), TESTS.values(), ids=TESTS)
def test_a_test_that_cannot_be_carried_is_left_out_and_told(
    bench: Bench, spoil: Callable[[Bench], object], told: str, carried: list[str]
) -> None:
    bench.edit(INIT, lambda text: EDIT + text)
    spoil(bench)
    outcome = bench.port()
    assert any(note.startswith(told) for note in outcome.data["look_at"])
    assert [path for path in Store(str(bench.stacks)).release("2.7.2").paths if path.startswith("tests/")] == carried


def test_a_tree_without_the_typo_gets_no_patch_for_it(bench: Bench) -> None:
    bench.edit(LAZY_INIT, lambda text: text.replace("_queue_calls", "_queued_calls"))
    bench.edit(INIT, lambda text: EDIT + text)
    outcome = bench.port()
    series = Store(str(bench.stacks)).release("2.7.2").series
    assert [name[:12] for name in series] == ["0001-forward", "0002-test-th"]
    assert any("the patch is left out" in note for note in outcome.data["look_at"])
    assert any(note.startswith("series/2.7.2: has other patch names") for note in outcome.data["look_at"])


def test_release_json_says_where_the_base_is_from(bench: Bench) -> None:
    bench.edit(INIT, lambda text: 'TORCH_MIN_VERSION = Version("2.6.0")\n' + text)
    outcome = bench.port("2.6.0", prove=_pass)
    about = Store(str(bench.stacks)).release("2.6.0").about
    assert (about["upstream_commit"], about["torch"]) == (UNKNOWN_COMMIT, "2.6.0")
    assert any("upstream_commit is unknown" in note for note in outcome.data["look_at"])
    repository(bench.tree)
    shutil.rmtree(bench.stacks)
    shutil.copytree(STACKS, bench.stacks)
    outcome = bench.port("2.6.1", prove=_pass)
    about = Store(str(bench.stacks)).release("2.6.1").about
    assert about["upstream_commit"] == git(bench.tree, "rev-parse", "HEAD").decode().strip()
    assert not any("upstream_commit" in note for note in outcome.data["look_at"])


def test_says_when_the_message_of_a_patch_may_not_fit(bench: Bench) -> None:
    bench.edit(INIT, lambda text: EDIT + text)
    assert not any("message" in note for note in bench.port("2.7.2", prove=_pass).data["look_at"])
    bench.edit(INIT, swap(ONE_LINE.format(FOUR)))
    look = bench.port("2.7.3", prove=_pass).data["look_at"]
    assert any("binds _lazy_init, _is_in_bad_fork, is_initialized off the handle here" in note for note in look)


TORCH = {
    "version": ('TORCH_MIN_VERSION = Version("2.5.0")\n', "2.5.0"),
    "text": ("TORCH_MIN_VERSION = '2.5.0'\n", "2.5.0"),
    "none": ("x = '2.5.0'\n", ""),
    "computed": ("TORCH_MIN_VERSION = f()\n", ""),
}


@pytest.mark.parametrize(("source", "version"), TORCH.values(), ids=TORCH)
def test_the_torch_version_is_read_off_the_source(source: str, version: str) -> None:
    assert torch_of(source.encode()) == version


def test_a_stack_to_port_from_is_named_or_the_closest(bench: Bench) -> None:
    bench.edit(INIT, lambda text: EDIT + text)
    assert bench.port("2.7.2", prove=_pass).data["from"] == "2.7.1+specimen"
    bench.edit(INIT, lambda text: EDIT + text)
    assert bench.port("2.7.3", prove=_pass, source="2.9.1.post1+specimen").data["from"] == "2.9.1.post1+specimen"
    bench.edit(INIT, lambda text: EDIT + text)
    with pytest.raises(Usage, match="has no stack here"):
        bench.port("2.7.4", source="9")


@pytest.mark.distro
def test_stock_tools_apply_what_was_ported(bench: Bench) -> None:
    from tests.stock_tools import check_sums, environment, run

    bench.edit(INIT, lambda text: text.replace(BLOCK, EDIT + OLDER_BLOCK))
    assert bench.port().outcome == "ported"
    folder = bench.stacks / "patches/2.7.2"
    patches = sorted(str(path) for path in folder.glob("*.patch"))
    env = environment(QUILT_PATCHES=str(folder), QUILT_SERIES=str(bench.stacks / "series/2.7.2"))
    code, said = run(["quilt", "push", "-a", "--fuzz=0"], bench.tree, env=env)
    assert code == 0 and "offset" not in said, said
    assert check_sums(bench.tree, folder / "result.sha256")[0] == 0
    assert run(["quilt", "pop", "-a"], bench.tree, env=env)[0] == 0
    shutil.rmtree(bench.tree / ".pc")
    repository(bench.tree)
    code, said = run(["git", "am", *patches], bench.tree)
    assert code == 0, said
    assert check_sums(bench.tree, folder / "result.sha256")[0] == 0


@pytest.mark.torch
def test_the_command_proves_at_the_simulated_level(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    import apply as program

    bench.edit(INIT, lambda text: EDIT * 30 + text.replace(BLOCK, ONE_LINE.format(ALL)))
    stacks = ["--stacks", str(bench.stacks)]
    assert program.main(["port", "--to", "2.7.2", "--json", *stacks, str(bench.tree)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["outcome"] == "ported" and "simulated: proven" in said["message"]
    assert program.main(["apply", "--tests", "none", *stacks, str(bench.tree)]) == 0
    assert "2.7.2: applied 3 patches" in capsys.readouterr().out


def test_the_command_refuses_a_known_base(bench: Bench, run_cli: RunCli) -> None:
    ran = run_cli("port", "--to", "2.7.2", "--stacks", bench.stacks, bench.tree)
    assert ran.code == 1 and "it has a stack" in ran.stderr


def test_the_command_wants_a_name(bench: Bench, run_cli: RunCli) -> None:
    ran = run_cli("port", "--stacks", bench.stacks, bench.tree)
    assert ran.code == 2 and "--to RELEASE is missing" in ran.stderr
    assert "--accept-lazy-init DIGEST" in run_cli("port", "--help").stdout

"""After a power cut: what a transaction needs for the way back is on the disk before it changes a file of the tree."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import copy_specimen
from durable import Event, recorded, weaknesses
from stacks import make_stack
from test_transaction import VERBS, _grow_empty, prepare

from stack import commands
from stack.store import Store


def events_of(tree: Path, verb: str) -> list[Event]:
    prepare(tree, verb)
    with recorded(tree) as events:
        VERBS[verb](tree)
    return events


@pytest.mark.parametrize("verb", VERBS)
def test_everything_is_synced_in_time(specimen: Path, verb: str) -> None:
    assert weaknesses(events_of(specimen, verb)) == []


def test_directories_that_come_and_go_are_synced_too(tmp_path: Path) -> None:
    base = tmp_path / "base"
    for folder in ("kept", "goes"):
        (base / folder).mkdir(parents=True)
    for name in ("a", "goes/old", "z"):
        (base / name).write_text(f"{name}\n")
    make_stack(tmp_path / "s", "1", base, [_grow_empty])
    with recorded(base) as events:
        commands.apply(str(base), Store(str(tmp_path / "s")), commands.How())
    assert {"mkdir", "rmdir"} <= {event.name for event in events}
    assert weaknesses(events) == []


@pytest.mark.parametrize("verb", VERBS)
def test_each_sync_matters(tmp_path: Path, verb: str) -> None:
    """Without any one of them, something could be lost."""
    events = events_of(copy_specimen(tmp_path / "tree"), verb)
    syncs = [number for number, event in enumerate(events) if event.name == "fsync"]
    assert len(syncs) > 8
    for number in syncs:
        assert weaknesses([*events[:number], *events[number + 1 :]]), events[number]

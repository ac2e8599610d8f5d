"""What the stand-in card must do, each case in a forked copy of one child with real torch.

Run as a script by test_standin_card.py: `card_cases.py FD PATCHED UNPATCHED`. Sends, for each case,
what went wrong or an empty text. A case starts with its side's torch_musa imported, stand-in cards
behind it, nothing initialized.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import torch
import torch._dynamo
from torch import nn
from torch.utils.checkpoint import DefaultDeviceType, checkpoint

from verify.standin import card, device, draws, forked, report, session

BEFORE_DEFAULT_IS_ACCELERATOR = tuple(int(n) for n in torch.__version__.split(".")[:2]) < (2, 10)
GUARD = "PyTorch's device state was initialized in the forward pass"


def musa() -> Any:
    """Return the device module, as torch has it."""
    return torch.musa


def on_both_cards(check: Callable[[torch.device], None]) -> None:
    for index in range(2):
        check(torch.device("musa", index))


def every_draw_is_from_the_own_generator() -> None:
    assert draws.self_check() == []


def wrong_draws(drawing_from: Callable[[int], Any]) -> list[str]:
    """Return what the self-check says when operations draw in this way."""
    card.drawing_from = drawing_from  # type: ignore[assignment]
    vars(device)["drawing_from"] = drawing_from
    return draws.self_check()


def the_self_check_catches_a_draw_from_the_cpu() -> None:
    """The trap: checkpoint always preserves the CPU's generator: a draw from it proves nothing."""
    wrong = wrong_draws(lambda number: contextlib.nullcontext())
    assert len(wrong) == 2 * len(draws.DRAWS)
    assert "dropout on musa:0: moved the generators of cpu" in wrong


def the_self_check_catches_a_draw_from_the_other_card() -> None:
    plain = card.drawing_from
    wrong = wrong_draws(lambda number: plain(0))
    assert "rand on musa:1: moved the generators of musa:0" in wrong


def tensors_move() -> None:
    plain = torch.arange(3.0)
    moved = plain.to("musa:1")
    assert (moved.device, moved.get_device(), moved.is_cpu) == (torch.device("musa:1"), 1, False)
    assert moved.to("musa:0").device.index == 0
    assert moved.to(torch.float64).device.index == 1
    assert moved.to(plain).device.type == "cpu" and plain.to(moved).device.index == 1
    assert torch.equal(moved.cpu(), plain) and type(moved.cpu()) is torch.Tensor
    assert plain.to("musa").device.index == 0 and plain.musa(1).is_musa


def a_move_copies() -> None:
    plain = torch.zeros(3)
    moved = plain.to("musa")
    moved.add_(1)
    assert plain.tolist() == [0, 0, 0] and moved.tolist() == [1, 1, 1]
    assert moved.to("musa:0") is moved and moved.to("musa:0", copy=True) is not moved


def factories_know_the_card() -> None:
    def check(where: torch.device) -> None:
        made = [
            torch.randn(8, device=where),
            torch.arange(5, device=where),
            torch.tensor([1.0], device=where),
            torch.as_tensor([1.0], device=where),
            torch.zeros(2).new_zeros(2, device=where),
            torch.rand_like(torch.ones(3), device=where),
            torch.ones(3, device=where).new_tensor([1.0]),
        ]
        assert all(one.device == where for one in made), [one.device for one in made]

    on_both_cards(check)
    with torch.device("musa:1"):
        assert torch.rand(2).device.index == 1 and torch.tensor([1]).device.index == 1
    with torch.device("musa"):
        assert torch.rand(2).device.index == 0 and torch.tensor([1]).device.index == 0
    assert torch.tensor([1]).device.type == "cpu"


def the_current_card_is_the_default() -> None:
    with musa().device(1):
        assert torch.randn(8, device="musa").device.index == 1
        assert musa().current_device() == 1
    assert torch.randn(8, device="musa").device.index == 0
    seen: list[int] = []
    with musa().device(1):
        thread = threading.Thread(target=lambda: seen.append(torch.ones(1, device="musa").get_device()))
        thread.start()
        thread.join()
    assert seen == [0]


def devices_do_not_mix() -> None:
    ones = torch.ones(3, device="musa")
    for other in (torch.ones(3), torch.ones(3, device="musa:1")):
        try:
            ones + other
        except RuntimeError as error:
            assert "Expected all tensors to be on the same device" in str(error)
        else:
            raise AssertionError(f"musa:0 + {other.device} works")
    assert (ones * torch.tensor(2.0)).tolist() == [2, 2, 2]
    assert ones[torch.tensor([0, 2])].tolist() == [1, 1]


def in_place_and_out_keep_their_object() -> None:
    x = torch.ones(2, 3, device="musa")
    assert x.add_(1) is x
    assert x.t_() is x and x.shape == (3, 2) and (x + 1).shape == (3, 2)
    row = x[0]
    row.fill_(5)
    assert x.tolist()[0] == [5, 5]
    out = torch.empty(0, device="musa")
    assert torch.add(x, 1, out=out) is out and out.shape == (3, 2)


def training_runs_on_both_cards() -> None:
    def check(where: torch.device) -> None:
        layers = (nn.Linear(4, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
        model = nn.Sequential(*layers).to(where)
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.randn(4, 4).to(where)).square().mean().backward()
            optimizer.step()
        for weight in model.parameters():
            assert isinstance(weight, nn.Parameter)
            assert weight.device == where and weight.grad is not None and weight.grad.device == where
        assert copy.deepcopy(model)[0].weight.device == where
        model.cpu()
        assert type(model[0].weight) is nn.Parameter and model[0].weight.device.type == "cpu"
        model(torch.randn(4, 4)).sum().backward()

    on_both_cards(check)


def gradients_cross_devices() -> None:
    leaf = torch.ones(3, requires_grad=True)
    (leaf.to("musa:1") * 2).to("musa:0").cpu().sum().backward()
    assert type(leaf.grad) is torch.Tensor and leaf.grad.tolist() == [2, 2, 2]
    far = torch.ones(3, device="musa:1", requires_grad=True)
    far.cpu().sum().backward()
    assert far.grad is not None and far.grad.get_device() == 1


def dropout_gradient_is_the_mask() -> None:
    def check(where: torch.device) -> None:
        cpu = torch.get_rng_state()
        x = torch.ones(64, device=where, requires_grad=True)
        y = nn.functional.dropout(x, 0.5)
        y.sum().backward()
        assert x.grad is not None and torch.equal(x.grad.cpu(), y.detach().cpu())
        assert 0 < int((y == 0).sum()) < 64
        assert torch.equal(cpu, torch.get_rng_state())

    on_both_cards(check)


def seeds_reach_the_cards() -> None:
    torch.manual_seed(5)
    first = [torch.rand(4, device=f"musa:{index}").tolist() for index in range(2)]
    torch.manual_seed(5)
    assert [torch.rand(4, device=f"musa:{index}").tolist() for index in range(2)] == first
    with musa().device(1):
        musa().manual_seed(9)
        one = torch.rand(4, device="musa")
    musa().manual_seed_all(9)
    assert torch.equal(one.cpu(), torch.rand(4, device="musa:1").cpu())
    assert torch.equal(one.cpu(), torch.rand(4, device="musa:0").cpu())


def a_seed_before_initialization_counts() -> None:
    musa().manual_seed_all(9)
    assert not musa().is_initialized()
    early = torch.rand(4, device="musa:1")
    musa().manual_seed_all(9)
    assert torch.equal(early, torch.rand(4, device="musa:1"))


def states_are_saved_and_restored() -> None:
    states = musa().get_rng_state_all()
    assert len(states) == 2
    drawn = torch.rand(4, device="musa:1")
    musa().set_rng_state_all(states)
    assert torch.equal(drawn, torch.rand(4, device="musa:1"))
    state = musa().get_rng_state("musa:1")
    with torch.random.fork_rng(devices=[1], device_type="musa"):
        inside = torch.rand(4, device="musa:1")
    assert torch.equal(state, musa().get_rng_state(1))
    assert torch.equal(inside, torch.rand(4, device="musa:1"))


def a_cpu_generator_is_refused() -> None:
    draws_of: tuple[Callable[[Any], Any], ...] = (
        lambda g: torch.rand(3, device="musa", generator=g),
        lambda g: torch.ones(3, device="musa").normal_(generator=g),
    )
    for draw in draws_of:
        try:
            draw(torch.Generator())
        except RuntimeError as error:
            assert "Expected a 'musa' device type for generator" in str(error)
        else:
            raise AssertionError("a CPU generator draws on a card")


def checkpoint_replays_with_the_fix() -> None:
    assert all(drawn["differ"] == [] and len(drawn["forward"]) == 16 for drawn in draws.record().values())


def checkpoint_does_not_replay_unpatched() -> None:
    assert all(drawn["differ"] == ["musa:0", "musa:1"] for drawn in draws.record().values())


def dropout_differs_unpatched() -> None:
    """Shows that the trap is not there: a checkpointed nn.Dropout really loses its mask."""
    torch.ones(1, device="musa")
    for use_reentrant in (True, False):
        x = torch.ones(256, device="musa", requires_grad=True)
        y = checkpoint(nn.Dropout(0.5), x, use_reentrant=use_reentrant)
        y.sum().backward()
        assert x.grad is not None and not torch.equal(x.grad.cpu(), y.detach().cpu())


def passes(use_reentrant: bool, by_keyword: bool) -> list[torch.Tensor]:
    """Checkpoint a function whose tensor on the card comes by closure or by keyword."""
    far = torch.ones(8, device="musa")
    drawn: list[torch.Tensor] = []

    def scale(x: torch.Tensor, like: torch.Tensor | None = None) -> torch.Tensor:
        drawn.append(torch.rand_like(far if like is None else like).cpu())
        return x * drawn[-1]

    x = torch.ones(8, requires_grad=True)
    more = {"like": far} if by_keyword else {}
    checkpoint(scale, x, use_reentrant=use_reentrant, **more).sum().backward()
    return drawn


def a_tensor_by_closure_or_keyword_is_not_protected() -> None:
    for use_reentrant, by_keyword in ((True, False), (False, False), (False, True)):
        first, second = passes(use_reentrant, by_keyword)
        assert not torch.equal(first, second)


def touched_inside(use_reentrant: bool) -> str:
    """Touch the card for the first time inside a checkpointed function with a CPU argument.

    Return the error's text.
    """
    x = torch.ones(8, requires_grad=True)
    try:
        checkpoint(lambda x: x * torch.rand(8, device="musa").cpu(), x, use_reentrant=use_reentrant)
    except RuntimeError as error:
        return str(error)
    finally:
        assert musa().is_initialized()
    return ""


def the_guard_fires_after_the_fix() -> None:
    if BEFORE_DEFAULT_IS_ACCELERATOR:
        DefaultDeviceType.set_device_type("musa")
    assert touched_inside(use_reentrant=False).startswith(GUARD)


def the_guard_needs_the_default_device_type() -> None:
    fires = touched_inside(use_reentrant=False).startswith(GUARD)
    assert fires is not BEFORE_DEFAULT_IS_ACCELERATOR


def the_guard_is_for_non_reentrant_only() -> None:
    DefaultDeviceType.set_device_type("musa")
    assert touched_inside(use_reentrant=True) == ""


def the_guard_cannot_fire_unpatched() -> None:
    DefaultDeviceType.set_device_type("musa")
    assert touched_inside(use_reentrant=False) == ""


UNPATCHED: tuple[Callable[[], None], ...] = (
    checkpoint_does_not_replay_unpatched,
    dropout_differs_unpatched,
    a_tensor_by_closure_or_keyword_is_not_protected,
    the_guard_cannot_fire_unpatched,
)
PATCHED: tuple[Callable[[], None], ...] = (
    every_draw_is_from_the_own_generator,
    the_self_check_catches_a_draw_from_the_cpu,
    the_self_check_catches_a_draw_from_the_other_card,
    tensors_move,
    a_move_copies,
    factories_know_the_card,
    the_current_card_is_the_default,
    devices_do_not_mix,
    in_place_and_out_keep_their_object,
    training_runs_on_both_cards,
    gradients_cross_devices,
    dropout_gradient_is_the_mask,
    seeds_reach_the_cards,
    a_seed_before_initialization_counts,
    states_are_saved_and_restored,
    a_cpu_generator_is_refused,
    checkpoint_replays_with_the_fix,
    a_tensor_by_closure_or_keyword_is_not_protected,
    the_guard_fires_after_the_fix,
    the_guard_needs_the_default_device_type,
    the_guard_is_for_non_reentrant_only,
)


def work(case: Callable[[], None], root: str, side: str) -> forked.Work:
    def run() -> str:
        session.prepare(Path(root), stale=False)
        case()
        return ""

    return forked.Work(f"{case.__name__}-{side}", run)


def main(descriptor: int, patched: str, unpatched: str) -> None:
    works = [work(case, patched, "patched") for case in PATCHED]
    works += [work(case, unpatched, "unpatched") for case in UNPATCHED]
    outcomes = forked.run(works, at_once=2, seconds=60.0)
    seen = {one.name: one.problem and f"{one.problem}\n{one.output}" for one in outcomes}
    report.send(descriptor, "value", {"torch": torch.__version__, "cases": seen})


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:4])

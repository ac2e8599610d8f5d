"""What a checkpointed function draws on a stand-in card, and proof that the card drew it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from verify.standin.extension import CARDS
from verify.standin.gate import MODES

_SEED = 20
_VALUES = 16

# One of each way in which numbers are drawn: a factory, a like-factory, in place, sampling, a fused
# and a composite dropout, a module, a module's initialization.
DRAWS: dict[str, Callable[[torch.device], Any]] = {
    "rand": lambda card: torch.rand(_VALUES, device=card),
    "randn": lambda card: torch.randn(_VALUES, device=card),
    "randint": lambda card: torch.randint(1000, (_VALUES,), device=card),
    "randperm": lambda card: torch.randperm(_VALUES, device=card),
    "normal": lambda card: torch.normal(0.0, 1.0, (_VALUES,), device=card),
    "rand_like": lambda card: torch.rand_like(_ones(card)),
    "randn_like": lambda card: torch.randn_like(_ones(card)),
    "randint_like": lambda card: torch.randint_like(_ones(card), 1000),
    "normal_": lambda card: _ones(card).normal_(),
    "uniform_": lambda card: _ones(card).uniform_(),
    "bernoulli_": lambda card: _ones(card).bernoulli_(0.5),
    "exponential_": lambda card: _ones(card).exponential_(),
    "random_": lambda card: _ones(card).random_(),
    "bernoulli": lambda card: torch.bernoulli(_ones(card) / 2),
    "multinomial": lambda card: torch.multinomial(_ones(card), 4),
    "poisson": lambda card: torch.poisson(_ones(card) * 9),
    "native_dropout": lambda card: torch.native_dropout(_ones(card), 0.5, True)[0],
    "dropout": lambda card: nn.functional.dropout(_ones(card), 0.5),
    "alpha_dropout": lambda card: nn.functional.alpha_dropout(_ones(card), 0.5, True),
    "rrelu": lambda card: nn.functional.rrelu(-_ones(card), training=True),
    "gumbel_softmax": lambda card: nn.functional.gumbel_softmax(_ones(card)),
    "attention": lambda card: nn.functional.scaled_dot_product_attention(
        *(_ones(card).reshape(1, 4, 4) for _ in range(3)), dropout_p=0.5
    ),
    "Dropout": lambda card: nn.Dropout(0.5)(_ones(card)),
    "Linear": lambda card: nn.Linear(4, 4, device=card).weight,
}


def _ones(card: torch.device) -> torch.Tensor:
    return torch.ones(_VALUES, device=card)


def self_check() -> list[str]:
    """Draw in every way on every card.

    Return what was not drawn from that card's generator alone.
    """
    sys.modules["torch_musa"]._lazy_init()
    return [
        f"{name} on musa:{index}: {wrong}"
        for index in range(CARDS)
        for name, draw in DRAWS.items()
        if (wrong := _wrong_source(draw, index))
    ]


def _wrong_source(draw: Callable[[torch.device], Any], index: int) -> str:
    """Return what is wrong with the source of a draw, or an empty text."""
    card = torch.device("musa", index)
    before = _states()
    drawn = draw(card)
    moved = [name for name, state in _states().items() if not torch.equal(state, before[name])]
    if drawn.device != card:
        return f"the result is on {drawn.device}"
    if moved != [f"musa:{index}"]:
        return f"moved the generators of {', '.join(moved) or 'nothing'}"
    sys.modules["torch_musa"].default_generators[index].set_state(before[f"musa:{index}"])
    return "" if torch.equal(drawn, draw(card)) else "the same state gives other numbers"


def _states() -> dict[str, torch.Tensor]:
    generators = sys.modules["torch_musa"].default_generators
    cards = {f"musa:{index}": generator.get_state() for index, generator in enumerate(generators)}
    return {"cpu": torch.default_generator.get_state(), **cards}


def record() -> dict[str, Any]:
    """Checkpoint a function that draws, in both modes on every card.

    Returns for each mode the numbers that forward pass and recompute drew on card 0, and the cards
    on which they differ, and how many cards there are.
    """
    return {mode: _record(reentrant) for mode, reentrant in MODES.items()}


def _record(use_reentrant: bool) -> dict[str, Any]:
    passes = [_passes(torch.device("musa", index), use_reentrant) for index in range(CARDS)]
    differ = [f"musa:{index}" for index, drawn in enumerate(passes) if len(drawn) != 2 or drawn[0] != drawn[1]]
    empty: list[float] = []
    forward, recompute, *_ = [*passes[0], empty, empty]
    where = {"card": "musa:0", "torch": torch.__version__}
    return {"forward": forward, "recompute": recompute, "differ": differ, "cards": CARDS, **where}


def _passes(card: torch.device, use_reentrant: bool) -> list[list[float]]:
    """Return what each pass over the checkpointed function drew."""
    drawn: list[list[float]] = []

    def scale_by_noise(x: torch.Tensor) -> torch.Tensor:
        noise = torch.rand_like(x)
        drawn.append(noise.detach().cpu().tolist())
        return x * noise

    sys.modules["torch_musa"].manual_seed_all(_SEED)
    argument = torch.ones(_VALUES, device=card, requires_grad=True)
    checkpoint(scale_by_noise, argument, use_reentrant=use_reentrant).sum().backward()
    return drawn

"""Does this torch's checkpoint still ask for the flag? If not, the defect cannot show."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

MODES = {"reentrant": True, "non-reentrant": False}


class _Claim(torch.Tensor):  # type: ignore[misc]  # torch is not there for mypy
    """A CPU tensor that says it is on a card: all that checkpoint looks at."""

    @property
    def device(self) -> torch.device:
        return torch.device("musa", 0)

    def get_device(self) -> int:
        return 0


class _Module:
    """The least device module that checkpoint accepts.

    Counts how often its random state is asked for.
    """

    def __init__(self, initialized: bool) -> None:
        self._initialized = initialized
        self.asked = 0

    def get_rng_state(self) -> torch.Tensor:
        self.asked += 1
        return torch.zeros(1, dtype=torch.uint8)

    def device(self, index: int) -> Any:
        return contextlib.nullcontext()

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]


def probe() -> dict[str, list[int]]:
    """Run a checkpointed forward pass in both modes, with the flag False and True.

    Returns, for each mode, how often the device's random state was stashed with either value of the
    flag. A torch that gates on the flag gives 0 and more than 0.
    """
    torch.utils.rename_privateuse1_backend("musa")
    return {mode: [_stashed(reentrant, flag) for flag in (False, True)] for mode, reentrant in MODES.items()}


def _stashed(use_reentrant: bool, initialized: bool) -> int:
    module = _Module(initialized)
    torch.musa = module
    argument = torch.ones(2).as_subclass(_Claim).requires_grad_()
    checkpoint(lambda x: x * 2, argument, use_reentrant=use_reentrant)
    return module.asked

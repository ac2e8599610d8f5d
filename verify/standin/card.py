"""Stand-in cards on a real CPU torch: tensors that say "musa", a random generator for each card.

A CardTensor is a wrapper subclass around a plain CPU tensor. To Python its device is musa:N; to
torch's C++ it is a CPU tensor, so that every torch from 2.7.1 on runs it, backward too, with no
guard registered in C++ and for any number of cards. Every operation reaches `__torch_dispatch__`,
whoever called it (a Python function, a module, C++ code inside a composite such as dropout, or the
autograd engine), and runs there with the card's generator in the place of the CPU's.
That is the point: checkpoint always preserves the CPU generator, so a draw from that one would
prove nothing.

How tensors get onto a card is in verify.standin.device.

What a card does not have: `torch.Generator("musa")`, streams, graphs, storages; a `*_like` factory
told `device="cpu"` stays on its card.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map

TYPE = "musa"
# Cards may differ, or one side may be the CPU, only where copying is what the operation is for.
_COPIES = frozenset({"aten::copy_", "aten::_copy_from"})
# A small index on the CPU may select on a card, as on any accelerator.
_INDEXES = frozenset({"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"})
# One operation at a time: the CPU generator is exchanged while it runs.
_lock = threading.RLock()


class CardTensor(torch.Tensor):  # type: ignore[misc]  # torch is not there for mypy
    """A tensor on a stand-in card, made from the plain CPU tensor that holds its values."""

    _held: torch.Tensor
    _card: int

    @staticmethod
    def __new__(cls, held: torch.Tensor, card: int) -> CardTensor:
        self: CardTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            layout=held.layout,
            device="cpu",
        )
        self._held = held
        self._card = card
        return self

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})

    # Without these two torch would not exchange a module's parameters for ones on a card
    # (Module.to).
    def __tensor_flatten__(self) -> tuple[list[str], int]:
        return ["_held"], self._card

    @staticmethod
    def __tensor_unflatten__(inner: Mapping[str, Any], card: int, size: Any, stride: Any) -> CardTensor:
        return CardTensor(inner["_held"], card)

    @property
    def device(self) -> torch.device:
        return torch.device(TYPE, self._card)

    def get_device(self) -> int:
        return self._card

    @property
    def is_cpu(self) -> bool:
        return False

    def cpu(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return Move.apply(self, torch.device("cpu"))

    def tolist(self) -> Any:
        return self.detach()._held.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        if not force:
            raise TypeError(f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() first.")
        return self.detach()._held.numpy()

    def __repr__(self, **kwargs: Any) -> str:
        return f"{repr(self.detach()._held)[:-1]}, device='{self.device}')"


class Move(torch.autograd.Function):  # type: ignore[misc]
    """Copies a tensor between the CPU and the cards, and its gradient back to where it belongs."""

    @staticmethod
    def forward(ctx: Any, source: torch.Tensor, target: torch.device) -> torch.Tensor:
        ctx.home = source.device
        held = source._held if isinstance(source, CardTensor) else source.detach()
        copy = held.clone()
        return copy if target.type == "cpu" else CardTensor(copy, number(target))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient.to(ctx.home), None


def generator(card: int) -> Any:
    """Return the random generator for one card, seeded as torch seeds a new one."""
    return torch.Generator()


def _run(func: Any, args: Any, kwargs: Any) -> Any:
    """Run one operation on the values of its card tensors, drawing from the card's generator."""
    flat, _ = tree_flatten((args, kwargs))
    tensors = [leaf for leaf in flat if isinstance(leaf, torch.Tensor)]
    card = _card_of(func, tensors, kwargs)
    refuse_foreign_generator(kwargs)
    if "device" in kwargs:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    plain_args, plain_kwargs = tree_map(value, (args, kwargs))
    with drawing_from(card):
        result = func(*plain_args, **plain_kwargs)
    # In-place and out= operations give back an argument, and a copy to the CPU a plain tensor: the
    # same object again.
    known = {id(value(tensor)): tensor for tensor in tensors}
    for tensor in tensors:
        _follow(tensor)
    return tree_map(lambda leaf: _wrapped(leaf, known, card), result)


def value(leaf: Any) -> Any:
    """Return the plain tensor behind a card tensor; anything else as it is."""
    return leaf._held if isinstance(leaf, CardTensor) else leaf


def _wrapped(leaf: Any, known: Mapping[int, Any], card: int) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return known[id(leaf)] if id(leaf) in known else CardTensor(leaf, card)


def _follow(tensor: Any) -> None:
    """Give a card tensor the shape that an in-place operation (resize_, t_) gave its values."""
    if isinstance(tensor, CardTensor) and (
        tensor.size() != tensor._held.size() or tensor.stride() != tensor._held.stride()
    ):
        with torch._C._DisableTorchDispatch():
            tensor.data = CardTensor(tensor._held, tensor._card)


def _card_of(func: Any, tensors: list[Any], kwargs: Mapping[str, Any]) -> int:
    """Return the card that an operation runs on.

    Raises RuntimeError, worded as torch words it, when its tensors are on different devices.
    """
    target = kwargs.get("device")
    if target is not None and target.type == TYPE:
        return number(target)
    name = func._schema.name
    devices = dict.fromkeys(
        str(tensor.device) for tensor in tensors if isinstance(tensor, CardTensor) or tensor.dim() > 0
    )
    if len(devices) > 1 and name not in _COPIES and not _may_mix(name, tensors):
        first, second = list(devices)[:2]
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, {first} and {second}!"
        )
    return next(tensor._card for tensor in tensors if isinstance(tensor, CardTensor))


def _may_mix(name: str, tensors: list[Any]) -> bool:
    """Say whether plain tensors may take part: an index, or what a backward formula made."""
    cards = {tensor._card for tensor in tensors if isinstance(tensor, CardTensor)}
    return len(cards) == 1 and (name in _INDEXES or torch._C._current_graph_task_id() != -1)


def refuse_foreign_generator(kwargs: Mapping[str, Any]) -> None:
    """Raise RuntimeError, worded as torch words it, for a generator that is not a card's."""
    if kwargs.get("generator") is not None:
        raise RuntimeError(f"Expected a '{TYPE}' device type for generator but found 'cpu'")


@contextlib.contextmanager
def drawing_from(card: int) -> Iterator[None]:
    """Put the card's random state in the place of the CPU's for the time of one operation."""
    own, cpu = sys.modules["torch_musa"].default_generators[card], torch.default_generator
    with _lock:
        saved = cpu.get_state()
        cpu.set_state(own.get_state())
        try:
            yield
        finally:
            own.set_state(cpu.get_state())
            cpu.set_state(saved)


def number(device: torch.device) -> int:
    """Return a card's number; without one it is the current card's.

    Initializes, as any use of a device does.
    """
    torch_musa = sys.modules["torch_musa"]
    torch_musa.core._lazy_init._lazy_init()
    return int(torch_musa.current_device() if device.index is None else device.index)

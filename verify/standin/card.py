"""Stand-in cards on a real CPU torch: tensors that say "musa", a random generator for each card.

A CardTensor is a wrapper subclass around a plain CPU tensor. To Python its device is musa:N; to
torch's C++ it is a CPU tensor, so that every torch from 2.7.1 on runs it, backward too, with no
guard registered in C++ and for any number of cards. Every operation reaches `__torch_dispatch__`,
whoever called it (a Python function, a module, C++ code inside a composite such as dropout, or the
autograd engine), and runs there with the card's generator in the place of the CPU's.
That is the point: checkpoint always preserves the CPU generator, so a draw from that one would
prove nothing.

Tensors are born on a card in two ways: factories with `device="musa"` arrive at kernels registered
for PrivateUse1, and `Tensor.to` is replaced by one that knows cards.

What it does not have: `torch.Generator("musa")`, streams, graphs, storages; a `*_like` factory told
`device="cpu"` stays on its card.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
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
_plain_to = torch.Tensor.to


class CardTensor(torch.Tensor):  # type: ignore[misc]  # torch is not there for mypy
    """A tensor on a stand-in card.

    Held: the plain CPU tensor with its values. card: the card's number.
    """

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
        return _Move.apply(self, torch.device("cpu"))

    def tolist(self) -> Any:
        return self.detach()._held.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        if not force:
            raise TypeError(f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() first.")
        return self.detach()._held.numpy()

    def __repr__(self, **kwargs: Any) -> str:
        return f"{repr(self.detach()._held)[:-1]}, device='{self.device}')"


class _Move(torch.autograd.Function):  # type: ignore[misc]
    """Copies a tensor between the CPU and the cards, and its gradient back to where it belongs."""

    @staticmethod
    def forward(ctx: Any, source: torch.Tensor, target: torch.device) -> torch.Tensor:
        ctx.home = source.device
        held = source._held if isinstance(source, CardTensor) else source.detach()
        copy = held.clone()
        return copy if target.type == "cpu" else CardTensor(copy, _number(target))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient.to(ctx.home), None


def install() -> None:
    """Teach torch the cards. torch_musa must be imported, with verify.standin.extension behind it.

    Changes torch for the whole process: only for a child that does nothing else.
    """
    # torch's C++ imports this name to initialize a device type before the first factory call.
    sys.modules[f"torch.{TYPE}"] = sys.modules["torch_musa"]
    _register_factories()
    torch.Tensor.to = _to
    for owner, name in (
        (torch, "tensor"),
        (torch, "as_tensor"),
        (torch, "asarray"),
        (torch.Tensor, "new_tensor"),
    ):
        setattr(owner, name, _from_data(getattr(owner, name)))
    # A parameter that changes its device becomes another tensor, never another storage in the same
    # tensor.
    torch.__future__.set_swap_module_params_on_conversion(True)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=False)
    if hasattr(torch, "accelerator"):
        torch.accelerator.current_accelerator = lambda check_available=False: torch.device(TYPE)


def generator(card: int) -> Any:
    """Return the random generator for one card, seeded as torch seeds a new one."""
    return torch.Generator()


def _run(func: Any, args: Any, kwargs: Any) -> Any:
    """Run one operation on the values of its card tensors, drawing from the card's generator."""
    flat, _ = tree_flatten((args, kwargs))
    tensors = [leaf for leaf in flat if isinstance(leaf, torch.Tensor)]
    card = _card_of(func, tensors, kwargs)
    _refuse_foreign_generator(kwargs)
    if "device" in kwargs:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    plain_args, plain_kwargs = tree_map(_value, (args, kwargs))
    with _drawing_from(card):
        result = func(*plain_args, **plain_kwargs)
    # In-place and out= operations give back an argument, and a copy to the CPU a plain tensor: the
    # same object again.
    known = {id(_value(tensor)): tensor for tensor in tensors}
    for tensor in tensors:
        _follow(tensor)
    return tree_map(lambda leaf: _wrapped(leaf, known, card), result)


def _value(leaf: Any) -> Any:
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
        return _number(target)
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
    """Say whether plain tensors may take part.

    As an index, or as zeros that a backward formula made on "the CPU".
    """
    cards = {tensor._card for tensor in tensors if isinstance(tensor, CardTensor)}
    return len(cards) == 1 and (name in _INDEXES or torch._C._current_graph_task_id() != -1)


def _refuse_foreign_generator(kwargs: Mapping[str, Any]) -> None:
    if kwargs.get("generator") is not None:
        raise RuntimeError(f"Expected a '{TYPE}' device type for generator but found 'cpu'")


@contextlib.contextmanager
def _drawing_from(card: int) -> Iterator[None]:
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


def _number(device: torch.device) -> int:
    """Return a card's number; without one it is the current card's.

    Initializes, as any use of a device does.
    """
    torch_musa = sys.modules["torch_musa"]
    torch_musa.core._lazy_init._lazy_init()
    return int(torch_musa.current_device() if device.index is None else device.index)


def _to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Stand in for Tensor.to: the same signature, and cards."""
    device, dtype = _target(self, args, kwargs)
    if not isinstance(self, CardTensor) and (device is None or device.type != TYPE):
        return _plain_to(self, *args, **kwargs)
    copy = kwargs.get("copy", False)
    cast = self if dtype is None or dtype == self.dtype else _plain_to(self, dtype)
    if device is not None and device.type == TYPE:
        device = torch.device(TYPE, _number(device))
    if device is None or device == self.device:
        return cast.clone() if copy and cast is self else cast
    return _Move.apply(cast, device)


def _from_data(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Return a stand-in for torch.tensor and its like: made on the CPU, then moved.

    Their C++ copies the values with Python's dispatch switched off, where a card tensor has no
    memory to copy to.
    """

    @functools.wraps(plain)
    def make(*args: Any, device: Any = None, requires_grad: bool = False, **kwargs: Any) -> Any:
        like = next(
            (arg.device for arg in args[:1] if isinstance(arg, CardTensor)),
            torch.get_default_device(),
        )
        wanted = like if device is None else torch.device(device)
        if wanted.type != TYPE:
            return plain(*args, device=device, **kwargs).requires_grad_(requires_grad)
        made = plain(*tree_map(_value, args), device=torch.device("cpu"), **kwargs)
        return made.detach().to(wanted).requires_grad_(requires_grad)

    return make


def _target(self: torch.Tensor, args: Any, kwargs: Any) -> tuple[torch.device | None, torch.dtype | None]:
    """Return the device and the dtype that the arguments of Tensor.to ask for."""
    other = args[0] if args else kwargs.get("other")
    if isinstance(other, torch.Tensor):
        return other.device, other.dtype
    kept = {name: value for name, value in kwargs.items() if name != "copy"}
    device, dtype, *_ = torch._C._nn._parse_to(*args[:2], **kept)
    return device, dtype


def _register_factories() -> None:
    """Register a PrivateUse1 kernel for every operation that makes a tensor from no tensor."""
    library = torch.library.Library("aten", "IMPL")
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith("aten::") and _is_factory(schema):
            packet = getattr(torch.ops.aten, schema.name[6:])
            overload = getattr(packet, schema.overload_name or "default")
            library.impl(overload, functools.partial(_make, overload), TYPE_KEY)
    # The kernels live as long as the library object does.
    CardTensor._library = library


TYPE_KEY = "PrivateUse1"


def _is_factory(schema: Any) -> bool:
    arguments = schema.arguments
    return any(argument.name == "device" for argument in arguments) and not any(
        "Tensor" in str(argument.type) for argument in arguments
    )


def _make(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Make a tensor on a card: on the CPU, with the card's generator, then wrapped."""
    if torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.Python):
        raise NotImplementedError("the stand-in card cannot be filled by C++ code that switches Python dispatch off")
    card = _number(kwargs["device"])
    _refuse_foreign_generator(kwargs)
    with _drawing_from(card):
        held = func(*args, **{**kwargs, "device": torch.device("cpu"), "pin_memory": False})
    return CardTensor(held, card)

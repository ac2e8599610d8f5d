"""How tensors get onto a stand-in card: torch is taught the device type musa.

Factories with `device="musa"` arrive at kernels registered for PrivateUse1, as they would on a real
card; `Tensor.to`, and the functions that make tensors from Python data, are replaced by ones that
know cards.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map

from verify.standin.card import (
    TYPE,
    CardTensor,
    Move,
    drawing_from,
    number,
    refuse_foreign_generator,
    value,
)

_KEY = "PrivateUse1"
_FROM_DATA = (
    (torch, "tensor"),
    (torch, "as_tensor"),
    (torch, "asarray"),
    (torch.Tensor, "new_tensor"),
)
_plain_to = torch.Tensor.to


def install() -> None:
    """Teach torch the cards. torch_musa must be imported, with verify.standin.extension behind it.

    Changes torch for the whole process: only for a child that does nothing else.
    """
    # torch's C++ imports this name to initialize a device type before the first factory call.
    sys.modules[f"torch.{TYPE}"] = sys.modules["torch_musa"]
    _register_factories()
    torch.Tensor.to = _to
    for owner, name in _FROM_DATA:
        setattr(owner, name, _from_data(getattr(owner, name)))
    # A parameter that changes its device becomes another tensor, never another storage in the same
    # tensor.
    torch.__future__.set_swap_module_params_on_conversion(True)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=False)
    if hasattr(torch, "accelerator"):
        torch.accelerator.current_accelerator = lambda check_available=False: torch.device(TYPE)


def _to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Stand in for Tensor.to: the same signature, and cards."""
    device, dtype = _target(self, args, kwargs)
    if not isinstance(self, CardTensor) and (device is None or device.type != TYPE):
        return _plain_to(self, *args, **kwargs)
    copy = kwargs.get("copy", False)
    cast = self if dtype is None or dtype == self.dtype else _plain_to(self, dtype)
    if device is not None and device.type == TYPE:
        device = torch.device(TYPE, number(device))
    if device is None or device == self.device:
        return cast.clone() if copy and cast is self else cast
    return Move.apply(cast, device)


def _from_data(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Return a stand-in for torch.tensor and its like: made on the CPU, then moved.

    Their C++ copies the values with Python's dispatch switched off, where a card tensor has no
    memory to copy to.
    """

    @functools.wraps(plain)
    def make(*args: Any, device: Any = None, requires_grad: bool = False, **kwargs: Any) -> Any:
        wanted = _default_device(args) if device is None else torch.device(device)
        if wanted.type != TYPE:
            return plain(*args, device=device, **kwargs).requires_grad_(requires_grad)
        made = plain(*tree_map(value, args), device=torch.device("cpu"), **kwargs)
        return made.detach().to(wanted).requires_grad_(requires_grad)

    return make


def _default_device(args: tuple[Any, ...]) -> torch.device:
    """Return the device of the first argument if it is on a card, else that of `with torch.device`.

    torch.get_default_device makes a tensor to find out, and would come back here.
    """
    if args and isinstance(args[0], CardTensor):
        return args[0].device
    modes = reversed(torch.overrides._get_current_function_mode_stack())
    contexts = (mode for mode in modes if isinstance(mode, torch.utils._device.DeviceContext))
    return next((torch.device(context.device) for context in contexts), torch.device("cpu"))


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
    for overload in factories():
        library.impl(overload, functools.partial(_make, overload), _KEY)
    # The kernels live as long as the library object does.
    CardTensor._library = library


@functools.cache
def factories() -> tuple[Any, ...]:
    """Return the operations that make a tensor from no tensor; found once, as that takes long."""
    return tuple(
        getattr(getattr(torch.ops.aten, schema.name[6:]), schema.overload_name or "default")
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("aten::") and _is_factory(schema)
    )


def _is_factory(schema: Any) -> bool:
    arguments = schema.arguments
    return any(argument.name == "device" for argument in arguments) and not any(
        "Tensor" in str(argument.type) for argument in arguments
    )


def _make(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Make a tensor on a card: on the CPU, with the card's generator, then wrapped."""
    if torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.Python):
        raise NotImplementedError("the stand-in card cannot be filled by C++ code that switches Python dispatch off")
    card = number(kwargs["device"])
    refuse_foreign_generator(kwargs)
    with drawing_from(card):
        held = func(*args, **{**kwargs, "device": torch.device("cpu"), "pin_memory": False})
    return CardTensor(held, card)

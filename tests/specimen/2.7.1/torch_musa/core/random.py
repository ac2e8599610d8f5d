"""Random numbers: one generator for each card, torch_musa.default_generators.

Reading a state initializes the cards. Writing one, or seeding, can wait: it is
queued, and done when the cards are initialized for another reason.
"""

import contextlib

import torch
import torch_musa

from ._lazy_init import _lazy_call, _lazy_init
from ._utils import _get_musa_device_index
from .device import current_device, device_count

__all__ = [
    "fork_rng",
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


def _generator(device):
    """the generator of a card; the cards must be initialized"""
    index = _get_musa_device_index(device, optional=True)
    return torch_musa.default_generators[index]


def get_rng_state(device="musa"):
    """the state of a card's generator, as a tensor of bytes on the CPU"""
    _lazy_init()
    return _generator(device).get_state()


def get_rng_state_all():
    """the state of every card, in order"""
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state(new_state, device="musa"):
    """put back what get_rng_state() returned; later changes to it do not count"""
    state = new_state.clone()
    _lazy_call(lambda: _generator(device).set_state(state))


def set_rng_state_all(new_states):
    """put back what get_rng_state_all() returned"""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed):
    """seed the generator of the current card"""
    seed = int(seed)
    _lazy_call(lambda: _generator(None).manual_seed(seed))


def manual_seed_all(seed):
    """seed the generator of every card with the same number"""
    seed = int(seed)

    def seed_each():
        for generator in torch_musa.default_generators:
            generator.manual_seed(seed)

    _lazy_call(seed_each)


def seed():
    """seed the generator of the current card with a number that nobody chose"""
    _lazy_call(lambda: _generator(None).seed())


def seed_all():
    """seed every card with one and the same number that nobody chose"""

    def seed_each():
        first, *others = torch_musa.default_generators
        number = first.seed()
        for generator in others:
            generator.manual_seed(number)

    _lazy_call(seed_each)


def initial_seed():
    """the number that the current card's generator was seeded with"""
    return torch_musa.default_generators[current_device()].initial_seed()


@contextlib.contextmanager
def fork_rng(
    devices=None,
    enabled=True,
    _caller="fork_rng",
    _devices_kw="devices",
    device_type="musa",
):
    """context after which all random states are what they were before it

    devices: numbers of the devices to care for; every one if None. The CPU is
    always cared for.
    enabled: False makes the context do nothing.
    _caller, _devices_kw: taken because torch passes them; not used.
    device_type: which devices are meant. "meta" draws nothing: nothing to do.
    """
    if not enabled or device_type == "meta":
        yield
        return
    module = getattr(torch, device_type)
    devices = list(range(module.device_count()) if devices is None else devices)
    cpu_state = torch.get_rng_state()
    states = [module.get_rng_state(device) for device in devices]
    try:
        yield
    finally:
        torch.set_rng_state(cpu_state)
        for device, state in zip(devices, states):
            module.set_rng_state(state, device)

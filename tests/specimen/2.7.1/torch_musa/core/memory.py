"""How much memory a card has left."""

from ._lazy_init import musart
from ._utils import _get_musa_device_index

__all__ = ["mem_get_info"]


def mem_get_info(device=None):
    """free and total memory of a card (the current one by default), in bytes"""
    runtime = musart()
    return runtime.musaMemGetInfo(_get_musa_device_index(device, optional=True))

"""Cards: how many there are, which one is current, changing over to one."""

import torch_musa._MUSAC

from ._lazy_init import _lazy_init
from ._utils import _get_musa_device_index

# Both make a card current and return the one that was. The second leaves
# things alone for a card that the process has not touched yet.
_exchange_device = torch_musa._MUSAC._musa_exchangeDevice
_maybe_exchange_device = torch_musa._MUSAC._musa_maybeExchangeDevice


class Device:
    """Context in which a card is current: Device(1), Device("musa:1").

    None, or a negative number, leaves the current card as it is.
    """

    def __init__(self, device):
        self.idx = -1
        if device is not None:
            self.idx = _get_musa_device_index(device, optional=True)
        self.prev_idx = -1

    def __enter__(self):
        if self.idx >= 0:
            self.prev_idx = _exchange_device(self.idx)

    def __exit__(self, *exception):
        if self.idx >= 0:
            _maybe_exchange_device(self.prev_idx)
        return False


class DeviceOf(Device):
    """Context in which the card of a tensor is current; nothing for one elsewhere."""

    def __init__(self, obj):
        on_card = obj.device.type == "musa"
        super().__init__(obj.device.index if on_card else None)


def register_musa_hook():
    """tell torch's dispatcher about the cards; needed once, before any tensor"""
    torch_musa._MUSAC._musa_register_device_hook()


def device_count():
    """the number of cards; does not initialize"""
    return torch_musa._MUSAC._musa_getDeviceCount()


def is_available():
    """whether there is a card; does not initialize"""
    return device_count() > 0


def current_device():
    """the number of the current card"""
    _lazy_init()
    return torch_musa._MUSAC._musa_getDevice()


def set_device(device):
    """make a card current; a negative number is ignored"""
    index = _get_musa_device_index(device, optional=True)
    if index >= 0:
        torch_musa._MUSAC._musa_setDevice(index)


def synchronize(device=None):
    """wait until a card (the current one by default) has done all its work"""
    _lazy_init()
    with Device(device):
        torch_musa._MUSAC._musa_synchronize()

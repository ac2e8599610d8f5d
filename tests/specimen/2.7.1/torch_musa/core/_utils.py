"""Which card a caller means: by number, by name, by torch.device or not at all."""

import torch
import torch_musa


def _get_musa_device_index(device, optional=False):
    """the number of the card

    device: an integer, a string such as "musa:1", a torch.device, or None.
    optional: whether None, or a device without a number, stands for the current
    card; otherwise it is an error.
    Raises ValueError for a device of another type, or for a missing number.
    """
    if isinstance(device, int):
        return device
    if device is not None:
        device = torch.device(device)
        if device.type != "musa":
            raise ValueError(f"expected a musa device, got {device}")
        if device.index is not None:
            return device.index
    if not optional:
        raise ValueError(f"{device} does not say which card is meant")
    return torch_musa.current_device()

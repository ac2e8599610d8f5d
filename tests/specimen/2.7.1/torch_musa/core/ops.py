"""Questions about tensors that code for several devices asks."""

__all__ = ["is_musa_tensor"]


def is_musa_tensor(value):
    """whether this is a tensor that lives on a card"""
    return getattr(getattr(value, "device", None), "type", None) == "musa"

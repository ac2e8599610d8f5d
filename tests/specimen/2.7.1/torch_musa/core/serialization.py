"""Where torch.load puts a storage that was saved from a card."""

import torch

# torch asks in the order of these numbers, lowest first, and cannot sort two
# entries with the same one: its own are 10 for the CPU and 20 and more.
PRIORITY = 15


def _location_of(storage):
    """what torch.save notes for a storage: its card, or None if it is on no card"""
    card = storage.device
    return f"musa:{card.index}" if card.type == "musa" else None


def _restore(storage, location):
    """the storage on the card that was noted, or None if it came from no card"""
    if not location.startswith("musa"):
        return None
    return storage.to(device=torch.device(location))


def register_deserialization():
    """hand the two functions above to torch.save and torch.load"""
    torch.serialization.register_package(PRIORITY, _location_of, _restore)

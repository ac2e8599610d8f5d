"""Test that a device context changes the current card and changes it back"""

import pytest
import torch
import torch_musa  # pylint: disable=unused-import


@pytest.mark.parametrize("name", ["{}", "musa:{}"])
def test_device_context_restores_current_card(name):
    """a card given by number or by name is current inside, and only there"""
    before = torch.musa.current_device()
    for index in range(torch.musa.device_count()):
        card = int(index) if name == "{}" else name.format(index)
        with torch.musa.device(card):
            assert torch.musa.current_device() == index
        assert torch.musa.current_device() == before

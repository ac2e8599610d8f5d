"""Test initialization on first use: needs a process that touched no card"""

import gc
import torch
import torch_musa


class TestLazyInit:
    """The first test makes the first tensor on a card; the others come after"""

    card = "musa"

    def teardown_method(self):
        """release what the test left on the card"""
        # A tensor in a reference cycle would outlive the test, and its memory
        # with it.
        gc.collect()

    def test_lazy_init_flag(self):
        assert not torch_musa.core._lazy_init.is_initialized()
        x = torch.randn((8,), device="musa")
        assert torch_musa.core._lazy_init.is_initialized()

        del x

    def test_second_init_does_nothing(self):
        """test that initializing again is allowed and keeps the state"""
        torch_musa._lazy_init()
        before = torch_musa.get_rng_state(self.card)
        torch_musa._lazy_init()
        assert torch.equal(torch_musa.get_rng_state(self.card), before)

    def test_call_runs_at_once(self):
        """test that nothing waits once the card is there"""
        torch_musa._lazy_init()
        done = []
        torch_musa._lazy_call(lambda: done.append(self.card))
        assert done == [self.card]

"""An installed torch_musa: found by its environment's metadata, gated by the same pins, changed by the one engine."""

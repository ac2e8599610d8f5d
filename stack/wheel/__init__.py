"""A wheel of torch_musa: read by the same pins, written anew with the fix and a version of its own."""

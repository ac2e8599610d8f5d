"""What stands in for torch, for the compiled part of torch_musa and for a card. Runs in child interpreters only."""

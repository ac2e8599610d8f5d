"""Stand-ins for torch, torch_musa's compiled part and cards. For child interpreters only."""

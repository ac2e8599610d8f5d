"""The parts of tests/faults.py: worlds, recorded calls, injection, and the judgement of what is left."""

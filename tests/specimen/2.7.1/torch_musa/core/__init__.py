"""The parts of the specimen, one subject to a module.

The function that initializes the device is bound here as "init": under its own
name it would hide the submodule _lazy_init, which others reach as an attribute
of this package.
"""

from ._lazy_init import _lazy_init as init

__all__ = ["init"]

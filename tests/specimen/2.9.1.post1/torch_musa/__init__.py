"""A miniature torch_musa: the specimen that the patch series is tried on.

Written from scratch, with no code of the plugin: it offers what a training
script needs of a device module (cards, random state, lazy initialization),
on top of the compiled module torch_musa._MUSAC, which is not part of it.

The lines that a patch touches, and the lines around them, stand where they
stand in release 2.9.1.post1; all else is arranged to keep them there.

Other than in 2.7.1, the operators follow the imported block at once: a patch
that was cut for one of the two releases does not apply to the other.
"""

import sys

import torch

__version__ = "2.9.1.post1+specimen"

# Filled in by _MUSAC._musa_init(), one generator for each card. Nothing may
# look into it before _lazy_init() has run: core.random sees to that.
default_generators = ()


# What the device type is called, here and in torch.
_DEVICE_TYPE = "musa"


def _explain_missing_extension(error):
    """the error for a user whose Python does not find the compiled module

    The usual reason is a current directory that holds the sources: the
    package found there has the Python files only.
    """
    return ImportError(
        "torch_musa._MUSAC cannot be imported (" + str(error) + "). "
        "If the current directory holds the sources of torch_musa, leave it, "
        "or build the extension in place."
    )


# From here on this is the name of the device type PrivateUse1. torch takes
# this once in a process and refuses any other name after it.
torch.utils.rename_privateuse1_backend(_DEVICE_TYPE)

# The compiled module comes before every submodule: core.device takes two of
# its functions while it is imported, and core._lazy_init the one that
# knows a bad fork.
try:
    import torch_musa._MUSAC
except ImportError as reason:
    raise _explain_missing_extension(reason) from reason

# torch looks a device module up as an attribute of its own, named like the
# device type. The module itself goes there, not a copy of its names, so that
# what is bound below shows under both names.
torch.musa = sys.modules[__name__]

torch.version.musa = torch_musa._MUSAC._musa_version

# core binds this function as "init": a function named _lazy_init there would
# hide the submodule of that name.
from .core import init

# Cards: which one is current, how many there are, how to change over to one.
from .core.device import (
    Device as device,
    DeviceOf as device_of,
    _exchange_device,
    _maybe_exchange_device,
    current_device,
    device_count,
    is_available,
    register_musa_hook,
    set_device,
    synchronize,
)

# The compiled module asks for a card by itself when a tensor is made, on any
# thread, autograd's own included: it has to know whom to call before it may do
# so.
register_musa_hook()


def get_amp_supported_dtype():
    """the types that autocast may compute in, on any card

    torch.autocast asks every device module that is not built into torch for
    this function, and checkpoint enters autocast in each recompute, switched
    on or not. Without it no checkpointed region runs.
    """
    return [torch.float16, torch.bfloat16]


def is_autocast_dtype(dtype):
    """whether autocast on a card may compute in this type

    A caller that is handed a type from outside can ask here, rather than
    have autocast switch itself off with a warning.
    """
    return dtype in get_amp_supported_dtype()


# What follows are names that users of the device module expect on it: first
# storage and memory, then initialization, then random numbers.
#
# The lines below stand where they stand in the release that this specimen
# stands for, so that a patch for the release finds them at its own line
# numbers, with no offset. The name _initialized among them is the defect that
# the series mends: a copy of a flag that is still False when it is copied.

from .core.serialization import register_deserialization

from .core import memory
from .core.memory import *

from .core._lazy_init import (
    _lazy_init,
    _lazy_call,
    _initialized,
    _is_in_bad_fork,
    is_initialized,
    musart,
)
from .core.ops import *

from .core.random import *

# torch's own fork_rng would take the generators of "cuda" when nobody names a
# device type; ours takes those of the cards, and minds a named type as well.
torch.random.fork_rng = fork_rng

from .core.musa import runtime_version

register_deserialization()

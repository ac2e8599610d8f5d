"""The release of the driver's runtime that the compiled module was built for."""

import torch_musa._MUSAC


def runtime_version():
    """major and minor number of the runtime"""
    major, minor = torch_musa._MUSAC._musa_version.split(".")[:2]
    return int(major), int(minor)

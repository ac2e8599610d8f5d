"""The engine: bytes, patches, trees and transactions. It knows no torch and no pytest.

Records are NamedTuples, not dataclasses: start-up is most of a command's time, and importing
`dataclasses` (it pulls in `inspect`) costs as much as reading, checking and applying a stack.
"""

"""A stack in the form of somebody's packaging: Debian, RPM, quilt, or one file for git am.

Each form is a module with `draft`, which says what files OUT shall have; stack.export.command makes it so.
"""

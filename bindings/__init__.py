"""The generator, which makes C routines and Python modules from vendors' headers and roles.

It is never imported at run time.
"""

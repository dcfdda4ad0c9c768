"""The generator: makes C routines and Python modules from vendors' headers and roles. Never imported at run time."""

"""The workshop: vendor headers in, C routines and Python modules out. Never imported at run time."""

"""The workshop: vendor headers in, C shims and Python functions out. Never imported at run time."""

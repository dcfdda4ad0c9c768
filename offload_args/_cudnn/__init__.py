"""Additions to offload_args.cudnn: descriptors from pointers, and graphs of operations that run as one plan."""

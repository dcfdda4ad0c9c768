"""Print the folder of the headers that kernels in C include: `cc -I$(python -m offload_args.kernels)`."""

from . import include

print(include())

# python setup.py build_ext --inplace
from setuptools import Extension, setup

import offload_args

setup(name="power", ext_modules=[Extension("power", ["power.c"], include_dirs=[offload_args.get_include()])])

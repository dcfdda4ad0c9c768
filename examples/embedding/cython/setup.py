# python setup.py build_ext --inplace
from Cython.Build import cythonize
from setuptools import Extension, setup

import offload_args

power = Extension("power", ["power.pyx"], include_dirs=[offload_args.get_include()])
setup(name="power", ext_modules=cythonize([power]))

/* The version that a double of rocBLAS tells; scripts/doubles links it with the object file of rocblas.py. */
const char rocblas_double_version[] = VERSION ".double";

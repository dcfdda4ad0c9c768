/* The core's numbers as Python has them. */
#ifndef OA_CORE_NUMBERS_H
#define OA_CORE_NUMBERS_H

/* Adds the tables of dtypes, statuses and kinds of trace events to the module, and every constant of the core that Python
 * uses, by its C name. Returns 0, or -1 with an exception. */
int add_numbers(PyObject *module);

#endif

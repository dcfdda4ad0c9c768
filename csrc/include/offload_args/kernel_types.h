/* The types of a kernel's parameters as numbers. The module has them beside the kernel, so that a signature that
 * differs from the source is refused. kernel.h includes this; a kernel in plain CUDA C or HIP needs
 *   #include <offload_args/kernel_types.h>
 *   OA_KERNEL_TYPES(vadd, vadd)
 * after it, which Kernel.compile adds. It is C++11, and includes nothing. */
#ifndef OFFLOAD_ARGS_KERNEL_TYPES_H
#define OFFLOAD_ARGS_KERNEL_TYPES_H
#ifdef __cplusplus

#if defined(__HIP__)
#define OA_TYPES_FUNCTION __attribute__((host, device))
#define OA_TYPES_CONSTANT extern "C" __attribute__((device, visibility("default"))) const
#elif defined(__CUDACC__)
#define OA_TYPES_FUNCTION __host__ __device__
#define OA_TYPES_CONSTANT extern "C" __device__ const
#else
#define OA_TYPES_FUNCTION
#define OA_TYPES_CONSTANT extern "C" __attribute__((visibility("default"))) const
#endif

namespace oa {
namespace types {
/* A word for each parameter: the bytes of an element or of the value in the low 16 bits (0: not known), then the kind
 * of number, then the way in which the parameter is passed. offload_args/kernels/types.py has the same numbers. */
enum : unsigned { number_unit = 1u << 16, passed_unit = 1u << 20, most_bytes = 0xffff };
enum : unsigned { is_other, is_bool, is_char, is_signed, is_unsigned, is_floating, is_enum };
enum : unsigned { by_value, by_const_pointer, by_pointer, by_in, by_out, by_in_out, by_atomic };

template <class T>
struct NumberOf {
  static constexpr unsigned value = __is_enum(T) ? is_enum : is_other;
};
template <class T>
struct NumberOf<const T> : NumberOf<T> {};
template <class T>
struct NumberOf<volatile T> : NumberOf<T> {};
template <class T>
struct NumberOf<const volatile T> : NumberOf<T> {};
#define OA_NUMBER(type, number)               \
  template <>                                 \
  struct NumberOf<type> {                     \
    static constexpr unsigned value = number; \
  }
OA_NUMBER(bool, is_bool);
OA_NUMBER(char, is_char);
OA_NUMBER(signed char, is_signed);
OA_NUMBER(short, is_signed);
OA_NUMBER(int, is_signed);
OA_NUMBER(long, is_signed);
OA_NUMBER(long long, is_signed);
OA_NUMBER(unsigned char, is_unsigned);
OA_NUMBER(unsigned short, is_unsigned);
OA_NUMBER(unsigned, is_unsigned);
OA_NUMBER(unsigned long, is_unsigned);
OA_NUMBER(unsigned long long, is_unsigned);
OA_NUMBER(float, is_floating);
OA_NUMBER(double, is_floating);
#undef OA_NUMBER

/* The size of a type; 0 for void, and for structs that are only declared. */
template <unsigned long long>
struct Sized {
  using type = int;
};
template <class T, class = int>
struct BytesOf {
  static constexpr unsigned value = 0;
};
template <class T>
struct BytesOf<T, typename Sized<sizeof(T)>::type> {
  static constexpr unsigned value = sizeof(T) > most_bytes ? 0u : static_cast<unsigned>(sizeof(T));
};
#define OA_NO_BYTES(type)                \
  template <>                            \
  struct BytesOf<type, int> {            \
    static constexpr unsigned value = 0; \
  }
OA_NO_BYTES(void);
OA_NO_BYTES(const void);
#undef OA_NO_BYTES

template <class T, unsigned passed>
struct Word {
  static constexpr unsigned value = BytesOf<T>::value + number_unit * NumberOf<T>::value + passed_unit * passed;
};
/* A parameter by its type. kernel.h adds specializations for the arrays of kernels. */
template <class T>
struct Parameter : Word<T, by_value> {};
template <class T>
struct Parameter<T *> : Word<T, by_pointer> {};
template <class T>
struct Parameter<const T *> : Word<T, by_const_pointer> {};

template <unsigned count>
struct Table {
  unsigned words[count + 1]; /* words[0]: the number of parameters */
};
/* The table of a kernel, by the type of its function or of a pointer to it. */
template <class Function>
struct Of;
template <class... A>
struct Of<void(A...)> {
  static constexpr unsigned count = sizeof...(A);
  OA_TYPES_FUNCTION static constexpr Table<sizeof...(A)> table() {
    return {{static_cast<unsigned>(sizeof...(A)), Parameter<A>::value...}};
  }
};
template <class... A>
struct Of<void (*)(A...)> : Of<void(A...)> {};
/* The type of the overload of a function that returns void, as kernels do. */
template <class... A>
OA_TYPES_FUNCTION void (*kernel_of(void (*)(A...)))(A...);
}  // namespace types
}  // namespace oa

/* Puts the types of a kernel's parameters into the module, by the type of its function. */
#define OA_KERNEL_TYPES_OF(name, ...)                                                                                \
  OA_TYPES_CONSTANT ::oa::types::Table< ::oa::types::Of<__VA_ARGS__>::count> oa_types_##name;                        \
  OA_TYPES_CONSTANT ::oa::types::Table< ::oa::types::Of<__VA_ARGS__>::count> oa_types_##name __attribute__((used)) = \
      ::oa::types::Of<__VA_ARGS__>::table();
/* Puts the types into the module by the function's name. At most one overload of the function may return void. */
#define OA_KERNEL_TYPES(name, ...) OA_KERNEL_TYPES_OF(name, decltype(::oa::types::kernel_of(&__VA_ARGS__)))
/* Puts the types into the module by the list of the parameters, for a function with any overloads. */
#define OA_KERNEL_PARAMETERS(name, ...) OA_KERNEL_TYPES_OF(name, void(__VA_ARGS__))

#endif
#endif

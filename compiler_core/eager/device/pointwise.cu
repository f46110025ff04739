// Names that the compiler's C++ has for what CUDA C calls otherwise: before the kernels of composites that are pointwise.
//
// In: before this text that of numbers.cu. Out: the functions by those names.

#define DC_INLINE __device__ inline
#define dc_exp expf
#define dc_erf erff
#ifndef DC_EMULATED
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned uint32_t;
typedef unsigned long long uint64_t;
#define __builtin_inff() __int_as_float(0x7f800000)
#define __builtin_inf() __longlong_as_double(0x7ff0000000000000)
#define __builtin_nanf(_) __int_as_float(0x7fc00000)
#define __builtin_nan(_) __longlong_as_double(0x7ff8000000000000)
#define __builtin_fabsf fabsf
#define __builtin_fabs fabs
#define __builtin_sqrtf sqrtf
#define __builtin_sqrt sqrt
#define __builtin_floorf floorf
#define __builtin_floor floor
#define __builtin_ceilf ceilf
#define __builtin_ceil ceil
#define __builtin_rintf rintf
#define __builtin_rint rint
#define __builtin_truncf truncf
#define __builtin_trunc trunc
#define __builtin_copysignf copysignf
#define __builtin_copysign copysign
#define __builtin_fmodf fmodf
#define __builtin_fmod fmod
#endif

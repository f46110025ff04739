// NumPy's arrays, and tuples of them, as kernels that Python calls get them.
//
// Layouts: CPython's tuple and NumPy's array (stable since NumPy 1.7, the same in 2.x), tested when loaded (native.py).

struct Object { int64_t references; void* type; };
struct Descr { Object head; void* scalar; char kind, type, order, flags; int32_t number; };
struct Array {
  Object head;
  char* data;
  int32_t ndim;
  int64_t *shape, *strides;
  Object* base;
  Descr* descr;
  int32_t flags;
};
struct Tuple { Object head; int64_t size; Array* items[1]; };

constexpr int64_t BLOCK = 4096;  // elements that are summed in lanes; such sums are added in double
constexpr int32_t FLOAT = 11, DOUBLE = 12, DENSE = 0x101;  // NPY_FLOAT, NPY_DOUBLE; in C order, and aligned

DC_INLINE int64_t numel(const Array* a) {
  int64_t n = 1;
  for (int32_t d = 0; d < a->ndim; ++d) n *= a->shape[d];
  return n;
}

#define EXPORT extern "C" __attribute__((visibility("default"))) int64_t

// Whether arrays lie in memory as this file has it: of (an array, None, its base) what is known of the array.
EXPORT dc_is_as_told(void* arrays, int64_t data, int64_t size, int64_t stride, int64_t number) {
  const Tuple* t = (const Tuple*)arrays;
  const Array* a = t->items[0];
  const bool is_there = (int64_t)a->data == data && a->ndim == 2 && a->shape[1] == size && a->strides[0] == stride;
  const bool has_flags = (a->flags & DENSE) == 0x100 && (t->items[2]->flags & DENSE) == DENSE;
  const bool is_none = t->items[1]->head.type != a->head.type;
  return t->size == 3 && is_there && has_flags && a->descr->number == number && is_none;
}

// Item k as elements of T; null for None, which is no array.
template <class T> DC_INLINE T* at(const Tuple* t, int k) {
  return t->items[k]->head.type == t->items[0]->head.type ? (T*)t->items[k]->data : nullptr;
}

// Whether every array is dense, as all kernels take them to be.
static inline bool is_dense(const Tuple* t) {
  for (int64_t k = 0; k < t->size; ++k)
    if (at<char>(t, (int)k) && (t->items[k]->flags & DENSE) != DENSE) return false;
  return true;
}

#define BY_DTYPE(kernel, ...) \
  (!is_dense((const Tuple*)arrays) ? -1 \
   : ((const Tuple*)arrays)->items[0]->descr->number == FLOAT ? kernel<float>((const Tuple*)arrays, ##__VA_ARGS__) \
                                                              : kernel<double>((const Tuple*)arrays, ##__VA_ARGS__))

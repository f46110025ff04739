// The part of a package's code that is the same in all: it prepares an instance, and calls it. See distcompile_package.h.
// It stands behind the interface and the tables of the instances (tables.py), and is linked with the generated kernels and the pool.
#include <cstdio>
#include <cstdlib>
#include <initializer_list>

extern "C" void* dlsym(void* handle, const char* name);
extern "C" int32_t dc_pool_resize(int32_t threads);
extern "C" void dc_pool_run(int64_t n, int64_t least, int64_t shares, void (*run)(void*, int64_t, int64_t), void* with);
extern "C" void (*dc_pool)(int64_t, int64_t, int64_t, void (*)(void*, int64_t, int64_t), void*);

#define DCPKG_VISIBLE extern "C" __attribute__((visibility("default")))

namespace {

enum { LINE = 64, LIBRARY_FAILED = 0x7FFFFFFD, RAISED = 0x7FFFFFFE };

// In the place of Python, which would look at data that a library routine refuses.
int32_t refused(const void* const*) { return RAISED; }

struct Words {
  int64_t* at;
  int64_t used, room;
  void add(int64_t word) {
    if (used == room) at = (int64_t*)realloc(at, (size_t)(room = 2 * room + 64) * sizeof(int64_t));
    at[used++] = word;
  }
};

int64_t lines(int64_t nbytes) { return (nbytes + LINE - 1) / LINE * LINE; }

// oneDNN's C API, by address (dnnl.h; values of its enums as in compiler_core/runtime/onednn.py).
struct Dnnl {
  void* library;
  const char* missing = nullptr;
  void *engine = nullptr, *stream = nullptr, *attributes = nullptr;
  enum { CPU = 1, IN_ORDER = 1, F32 = 3, ANY = 1, FORWARD = 64, DIRECT = 1, USER = 1 };
  enum { WEIGHTS_MD = 131, SCRATCHPAD_MD = 136, SRC = 1, DST = 17, WEIGHTS = 33, SCRATCHPAD = 80,
         DIFF_SRC = 129, DIFF_DST = 145 };

  void* find(const char* name) {
    void* found = dlsym(library, name);
    if (!found) missing = name;
    return found;
  }
  template <class... A> int32_t call(const char* name, A... args) {
    void* function = find(name);
    return function ? ((int32_t (*)(A...))function)(args...) : -1;
  }
  bool open() {
    return !call("dnnl_engine_create", &engine, (int32_t)CPU, (size_t)0) &&
           !call("dnnl_stream_create", &stream, engine, (uint32_t)IN_ORDER) &&
           !call("dnnl_primitive_attr_create", &attributes) &&
           !call("dnnl_primitive_attr_set_scratchpad_mode", attributes, (int32_t)USER);
  }
  void* strided(const dcpkg_layout& a) {
    void* made = nullptr;
    call("dnnl_memory_desc_create_with_strides", &made, (int32_t)a.ndim, a.dims, (int32_t)F32, a.strides);
    return made;
  }
  void* any(const dcpkg_layout& a) {
    void* made = nullptr;
    call("dnnl_memory_desc_create_with_tag", &made, (int32_t)a.ndim, a.dims, (int32_t)F32, (int32_t)ANY);
    return made;
  }
  void* part(void* primitive, int32_t query) {
    void* function = find("dnnl_primitive_desc_query_md");
    return function ? ((void* (*)(void*, int32_t, int32_t))function)(primitive, query, 0) : nullptr;
  }
  int64_t nbytes(void* descriptor) {
    void* function = find("dnnl_memory_desc_get_size");
    return function ? (int64_t)((size_t (*)(void*))function)(descriptor) : 0;
  }
};

// The plan of a convolution, as compiler_core/runtime/onednn.py says: weights are reordered into the scratch first.
bool plan(Dnnl& lib, const dcpkg_convolution& one, Words& words, int64_t& scratch) {
  void *src = lib.strided(one.src), *dst = lib.strided(one.dst), *given = lib.strided(one.weights);
  void *forward = nullptr, *description = nullptr, *free_weights = lib.any(one.weights);
  if (lib.call("dnnl_convolution_forward_primitive_desc_create", &forward, lib.engine, (int32_t)Dnnl::FORWARD,
               (int32_t)Dnnl::DIRECT, src, free_weights, (void*)nullptr, dst, one.stride, one.dilation, one.low,
               one.high, lib.attributes))
    return false;
  description = forward;
  if (one.of_input && lib.call("dnnl_convolution_backward_data_primitive_desc_create", &description, lib.engine,
                               (int32_t)Dnnl::DIRECT, src, free_weights, dst, one.stride, one.dilation, one.low,
                               one.high, forward, lib.attributes))
    return false;
  int64_t used = 0;
  auto reserve = [&](int64_t nbytes) {
    const int64_t place = -(used + 1);
    used += lines(nbytes);
    return place;
  };
  void *weights = given, *reorder = nullptr, *blocked = lib.part(description, Dnnl::WEIGHTS_MD);
  int64_t weights_at = 1;
  if (!lib.call("dnnl_memory_desc_equal", given, blocked)) {
    weights = blocked;
    weights_at = reserve(lib.nbytes(blocked));
    void* reorder_description = nullptr;
    if (lib.call("dnnl_reorder_primitive_desc_create", &reorder_description, given, lib.engine, blocked, lib.engine,
                 lib.attributes))
      return false;
    if (lib.call("dnnl_primitive_create", &reorder, reorder_description)) return false;
    void* pad = lib.part(reorder_description, Dnnl::SCRATCHPAD_MD);
    const int64_t pad_at = reserve(lib.nbytes(pad));
    for (const char* name : {"dnnl_memory_create", "dnnl_memory_destroy", "dnnl_primitive_execute"})
      words.add((int64_t)lib.find(name));
    for (int64_t word : {(int64_t)lib.engine, (int64_t)lib.stream, (int64_t)2, (int64_t)reorder, (int64_t)3,
                         (int64_t)Dnnl::SRC, (int64_t)1, (int64_t)given, (int64_t)Dnnl::DST, weights_at,
                         (int64_t)blocked, (int64_t)Dnnl::SCRATCHPAD, pad_at, (int64_t)pad})
      words.add(word);
  } else {
    for (const char* name : {"dnnl_memory_create", "dnnl_memory_destroy", "dnnl_primitive_execute"})
      words.add((int64_t)lib.find(name));
    for (int64_t word : {(int64_t)lib.engine, (int64_t)lib.stream, (int64_t)1}) words.add(word);
  }
  void *convolution = nullptr, *pad = lib.part(description, Dnnl::SCRATCHPAD_MD);
  if (lib.call("dnnl_primitive_create", &convolution, description)) return false;
  const int64_t pad_at = reserve(lib.nbytes(pad));
  const int64_t first = one.of_input ? Dnnl::DIFF_DST : Dnnl::SRC, last = one.of_input ? Dnnl::DIFF_SRC : Dnnl::DST;
  void *first_md = one.of_input ? dst : src, *last_md = one.of_input ? src : dst;
  for (int64_t word : {(int64_t)convolution, (int64_t)4, first, (int64_t)0, (int64_t)first_md, (int64_t)Dnnl::WEIGHTS,
                       weights_at, (int64_t)weights, last, (int64_t)2, (int64_t)last_md, (int64_t)Dnnl::SCRATCHPAD,
                       pad_at, (int64_t)pad})
    words.add(word);
  scratch = used > scratch ? used : scratch;
  return !lib.missing;
}

struct Prepared {
  const dcpkg_instance* instance;
  const void** lib;  // behind the numbers' address
  int64_t nbytes;    // of arena and scratch
};

struct Arena {
  char* at = nullptr;
  int64_t room = 0;
  ~Arena() { free(at); }
  char* of(int64_t nbytes) {
    if (room < nbytes) {
      free(at);
      void* made = nullptr;
      room = posix_memalign(&made, LINE, (size_t)nbytes) ? 0 : nbytes;
      at = (char*)(room ? made : nullptr);
    }
    return at;
  }
};
thread_local Arena arena;

}  // namespace

DCPKG_VISIBLE int64_t dcpkg_version() { return DCPKG_VERSION; }

DCPKG_VISIBLE const dcpkg_instance* dcpkg_instances(int64_t* count) {
  *count = DCPKG_COUNT;
  return dcpkg_all;
}

DCPKG_VISIBLE void* dcpkg_prepare(const dcpkg_instance* one, void* blas, void* dnnl, char* error, int64_t nerror) {
  const int64_t planned = 1 + one->nsymbols + one->ncallbacks, count = planned + one->nconvolutions;
  const void** lib = (const void**)calloc((size_t)count, sizeof(void*));
  lib[0] = one->numbers;
  for (int64_t k = 0; k < one->nsymbols; ++k) {
    lib[1 + k] = blas ? dlsym(blas, one->symbols[k]) : nullptr;
    if (!lib[1 + k]) {
      snprintf(error, (size_t)nerror, "OpenBLAS has no %s", one->symbols[k]);
      return nullptr;
    }
  }
  for (int64_t k = 0; k < one->ncallbacks; ++k) lib[1 + one->nsymbols + k] = (const void*)refused;
  int64_t scratch = one->scratch_nbytes;
  if (one->nconvolutions) {
    Dnnl library{dnnl};
    if (!dnnl || !library.open()) {
      snprintf(error, (size_t)nerror, "oneDNN cannot be used: %s", library.missing ? library.missing : "no engine");
      return nullptr;
    }
    for (int64_t k = 0; k < one->nconvolutions; ++k) {
      Words words{nullptr, 0, 0};
      if (!plan(library, one->convolutions[k], words, scratch)) {
        snprintf(error, (size_t)nerror, "oneDNN does not compute convolution %lld%s%s", (long long)k,
                 library.missing ? ": it has no " : "", library.missing ? library.missing : "");
        return nullptr;
      }
      lib[planned + k] = words.at;
    }
  }
  return new Prepared{one, lib + 1, lines(one->arena_nbytes) + scratch + LINE};
}

DCPKG_VISIBLE void dcpkg_call_back(void* prepared, const void* const* functions) {
  const Prepared& one = *(const Prepared*)prepared;
  for (int64_t k = 0; k < one.instance->ncallbacks; ++k) one.lib[one.instance->nsymbols + k] = functions[k];
}

DCPKG_VISIBLE const char* dcpkg_call(void* prepared, void** args) {
  const Prepared& one = *(const Prepared*)prepared;
  char* memory = arena.of(one.nbytes);
  if (!memory) return "there is no memory for what the program computes with";
  const int32_t status = one.instance->entry(args, memory, one.lib, nullptr);
  if (!status) return nullptr;
  if (status > 0 && status <= one.instance->nmessages) return one.instance->messages[status - 1];
  if (status == RAISED) return "a routine of LAPACK refuses its data: a matrix is singular, or not positive definite";
  return status == LIBRARY_FAILED ? "oneDNN failed" : "the program failed";
}

DCPKG_VISIBLE int32_t dcpkg_threads(int32_t threads) {
  if (threads > 1) dc_pool = dc_pool_run;
  return threads > 1 ? dc_pool_resize(threads) : 1;
}

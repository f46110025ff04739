// A package of distcompile (aot_compile), loaded and called from C++17, on Linux. One header, nothing to link but -ldl.
//
//   distcompile::Package model("model.dcpkg");
//   std::vector<distcompile::Array> results = model.run({distcompile::Array::of<float>({2, 3}, data)});
//
// The first part is the C interface of a package's code, which is compiled into each (DCPKG_ABI_ONLY). The second
// reads the file, which is a safetensors file, checks it, loads the code of the sizes at hand, and calls it.
// Everything that goes wrong is a distcompile::PackageError. A Package may be used by several threads; what the program
// writes to its buffers is its own. Libraries that the package names (OpenBLAS, oneDNN) are looked for at
// DISTCOMPILE_OPENBLAS and DISTCOMPILE_ONEDNN, then where they were when the package was made.
#pragma once
#include <cstdint>

enum { DCPKG_VERSION = 2 };

// kind of an input: the caller gives it, it lies in the file, or it is the key of the draws of a call, three words: seed,
// offset, shard; of an output: it is a result, or the new value of a weight or of an argument (place: which input).
enum { DCPKG_GIVEN = 0, DCPKG_HELD = 1, DCPKG_KEY = 2 };
enum { DCPKG_RESULT = 0, DCPKG_WRITTEN = 1 };

struct dcpkg_array {
  const char* name;
  const char* dtype;  // as safetensors: "F32"
  int64_t ndim;
  const int64_t* shape;
  int64_t nbytes;
  int64_t kind;
  int64_t place;  // of a held input: the byte in the file's data where it begins
};

struct dcpkg_layout {
  int64_t ndim;
  int64_t dims[6], strides[6];
};

// A convolution that oneDNN prepares, in its logical dims. of_input: its gradient by the input, which a transposed one is.
struct dcpkg_convolution {
  int64_t of_input;
  int64_t nspatial;
  int64_t stride[3], dilation[3], low[3], high[3];
  dcpkg_layout src, weights, dst;
};

struct dcpkg_events;
typedef int32_t (*dcpkg_entry)(void** args, char* arena, const void* const* lib, const dcpkg_events* events);

// The program for one set of sizes.
struct dcpkg_instance {
  dcpkg_entry entry;
  const dcpkg_array *inputs, *constants, *outputs;
  int64_t ninputs, nconstants, noutputs;
  int64_t arena_nbytes, scratch_nbytes;
  const int64_t* numbers;
  const char* const* symbols;  // of OpenBLAS
  int64_t nsymbols;
  int64_t ncallbacks;  // what Python computes, and where LAPACK refuses data; without Python that is an error
  const dcpkg_convolution* convolutions;
  int64_t nconvolutions;
  const char* const* messages;  // of failed checks
  int64_t nmessages;
};

// What the code has: dcpkg_version, dcpkg_instances, dcpkg_prepare (what is needed to call an instance; nullptr, with a
// text, if it lacks something; blas, dnnl: handles of dlopen or nullptr), dcpkg_call_back (what Python computes), dcpkg_call
// (args: inputs, constants, outputs; nullptr: done, else what failed), dcpkg_threads.
typedef int64_t (*dcpkg_version_fn)();
typedef const dcpkg_instance* (*dcpkg_instances_fn)(int64_t* count);
typedef void* (*dcpkg_prepare_fn)(const dcpkg_instance* instance, void* blas, void* dnnl, char* error, int64_t nerror);
typedef const char* (*dcpkg_call_fn)(void* prepared, void** args);
typedef int32_t (*dcpkg_threads_fn)(int32_t threads);

#ifndef DCPKG_ABI_ONLY
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace distcompile {

struct PackageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A contiguous array. bytes: its memory; dtype: as safetensors, "F32".
struct Array {
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::vector<char> bytes;

  template <class T> T* data() { return reinterpret_cast<T*>(bytes.data()); }
  template <class T> const T* data() const { return reinterpret_cast<const T*>(bytes.data()); }
  template <class T> static Array of(std::vector<int64_t> shape, const std::vector<T>& values) {
    Array made{"", dtype_of(T{}), std::move(shape), std::vector<char>(values.size() * sizeof(T))};
    std::memcpy(made.bytes.data(), values.data(), made.bytes.size());
    return made;
  }
  static const char* dtype_of(float) { return "F32"; }
  static const char* dtype_of(double) { return "F64"; }
  static const char* dtype_of(int64_t) { return "I64"; }
  static const char* dtype_of(int32_t) { return "I32"; }
  static const char* dtype_of(uint8_t) { return "U8"; }
};

class Package {
 public:
  explicit Package(const std::string& path, int32_t threads = 1) : path_(path) {
    map();
    check();
    for (int number = 0; section("code:" + std::to_string(number)).second; ++number) load(number, threads);
  }
  Package(const Package&) = delete;
  ~Package() { munmap((void*)file_, size_); }

  // What the caller gives for the first set of sizes, with its shapes and dtypes; the memory is not set.
  std::vector<Array> inputs() const {
    std::vector<Array> found;
    const dcpkg_instance& one = *instances_.at(0).raw;
    for (int64_t k = 0; k < one.ninputs; ++k)
      if (one.inputs[k].kind == DCPKG_GIVEN) found.push_back(like(one.inputs[k]));
    return found;
  }

  // Begin the random draws anew: a seed of the system's until then. Each call draws other numbers.
  void manual_seed(uint64_t seed) {
    const std::lock_guard<std::mutex> held(lock_);
    key_[0] = seed;
    key_[1] = 0;
  }

  // The results for these inputs, in order. What the program writes to an input is written there.
  std::vector<Array> run(std::vector<Array>&& given) { return run(given); }
  std::vector<Array> run(std::vector<Array>& given) {
    Instance& found = fitting(given);
    const dcpkg_instance& one = *found.raw;
    const bool writes = prepare(found);
    std::unique_lock<std::mutex> held(writing_, std::defer_lock);
    if (writes) held.lock();
    std::vector<Array> outputs, results;
    std::vector<void*> args;
    std::vector<Array*> own(one.ninputs, nullptr);
    uint64_t key[3];
    next_key(key);
    for (int64_t k = 0, next = 0; k < one.ninputs; ++k) {
      const dcpkg_array& input = one.inputs[k];
      if (input.kind == DCPKG_KEY) {
        args.push_back(key);
        continue;
      }
      if (input.kind == DCPKG_GIVEN) own[k] = &given[next++];
      auto written = written_.find(input.name);
      if (input.kind == DCPKG_HELD && written != written_.end()) own[k] = &written->second;
      args.push_back(own[k] ? own[k]->bytes.data() : (char*)data_ + input.place);
    }
    for (int64_t k = 0; k < one.nconstants; ++k) args.push_back((char*)data_ + one.constants[k].place);
    for (int64_t k = 0; k < one.noutputs; ++k) outputs.push_back(like(one.outputs[k]));
    for (Array& output : outputs) args.push_back(output.bytes.data());
    if (const char* failed = found.call(found.prepared, args.data())) throw PackageError(path_ + ": " + failed);
    for (int64_t k = 0; k < one.noutputs; ++k) {
      if (one.outputs[k].kind == DCPKG_WRITTEN)
        own[one.outputs[k].place]->bytes = std::move(outputs[k].bytes);
      else
        results.push_back(std::move(outputs[k]));
    }
    return results;
  }

 private:
  struct Instance {
    const dcpkg_instance* raw;
    dcpkg_prepare_fn prepare;
    dcpkg_call_fn call;
    void* prepared;
  };

  std::string path_, header_, manifest_;
  const char *file_ = nullptr, *data_ = nullptr;
  size_t size_ = 0;
  std::vector<Instance> instances_;
  std::map<std::string, Array> written_;  // buffers that the program writes
  std::mutex lock_, writing_;
  uint64_t key_[3] = {(uint64_t)std::random_device{}() << 32 | std::random_device{}(), 0, 0}, draws_ = 0;

  [[noreturn]] void fail(const std::string& what) const { throw PackageError(path_ + " " + what); }

  void map() {
    const int file = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat told {};
    if (file < 0 || fstat(file, &told)) fail("cannot be read");
    size_ = (size_t)told.st_size;
    void* found = size_ < 8 ? MAP_FAILED : mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (found == MAP_FAILED) fail("is no package");
    file_ = (const char*)found;
    uint64_t length;
    std::memcpy(&length, file_, 8);
    if (length > size_ - 8) fail("is no package, or a damaged one");
    header_.assign(file_ + 8, (size_t)length);
    data_ = file_ + 8 + length;
  }

  void check() {
    const std::string key = "\"crc32\":\"";
    const size_t at = header_.find(key), begin = header_.find("\"distcompile.package\":\"");
    if (at == std::string::npos || begin == std::string::npos) fail("is no package, or a damaged one");
    for (size_t k = begin + 23; k < header_.size() && header_[k] != '"'; ++k) {
      if (header_[k] == '\\') ++k;
      manifest_ += header_[k];
    }
    const long version = std::atol(value("\"version\": ").c_str());
    if (version > DCPKG_VERSION) fail("is a package of a newer format, " + std::to_string(version));
    std::string zeroed = header_;
    const std::string told = header_.substr(at + key.size(), 8);
    zeroed.replace(at + key.size(), 8, "00000000");
    uint32_t crc = crc32(0, zeroed.data(), zeroed.size());
    crc = crc32(crc, data_, size_ - 8 - header_.size());
    if ((uint32_t)std::strtoul(told.c_str(), nullptr, 16) != crc) fail("is a damaged package");
    utsname here{};
    uname(&here);
    if (value("\"machine\": \"") != here.machine) fail("is a package for another system, " + value("\"machine\": \""));
    std::ifstream cpu("/proc/cpuinfo");
    std::string line, flags;
    while (flags.empty() && std::getline(cpu, line))
      if (!line.compare(0, 5, "flags") || !line.compare(0, 8, "Features")) flags = line.substr(line.find(':')) + " ";
    for (const std::string& name : list("\"features\": ["))
      if (flags.find(" " + name + " ") == std::string::npos) fail("is a package for another CPU, with " + name);
    if (version < 2) return;
    if (manifest_.find("\"gpu\": {") != std::string::npos) fail("is a package for a GPU: Python loads these");
    for (const std::string& name : list("\"python\": [")) fail("calls Python for " + name + ": load it there");
    draws_ = std::strtoull(value("\"draws\": ").c_str(), nullptr, 10);
    key_[2] = std::strtoull(value("\"shard\": ").c_str(), nullptr, 10);
  }

  void next_key(uint64_t* key) {
    const std::lock_guard<std::mutex> held(lock_);
    std::memcpy(key, key_, sizeof key_);
    key_[1] += draws_;
  }

  // What follows a key of the manifest, up to the end of a word.
  std::string value(const std::string& key) const {
    const size_t at = manifest_.find(key);
    if (at == std::string::npos) fail("is no package, or a damaged one");
    return manifest_.substr(at + key.size(), manifest_.find_first_of(",\"}", at + key.size()) - at - key.size());
  }

  std::vector<std::string> list(const std::string& key) const {
    std::vector<std::string> found;
    size_t at = manifest_.find(key);
    const size_t end = manifest_.find(']', at);
    for (at = manifest_.find('"', at + key.size()); at < end; at = manifest_.find('"', at + 1)) {
      const size_t close = manifest_.find('"', at + 1);
      found.push_back(manifest_.substr(at + 1, close - at - 1));
      at = close;
    }
    return found;
  }

  // The bytes of an array of the file: (where, how many).
  std::pair<const char*, size_t> section(const std::string& name) const {
    const size_t at = header_.find("\"" + name + "\":{");
    if (at == std::string::npos) return {nullptr, 0};
    const std::string key = "\"data_offsets\":[";
    const char* text = header_.c_str() + header_.find(key, at) + key.size();
    char* rest;
    const size_t begin = std::strtoull(text, &rest, 10), end = std::strtoull(rest + 1, nullptr, 10);
    return {data_ + begin, end - begin};
  }

  void load(int number, int32_t threads) {
    const auto code = section("code:" + std::to_string(number));
    const int file = memfd_create("distcompile-package", MFD_CLOEXEC);  // stays open: the loader knows code by its name
    size_t done = 0;
    while (file >= 0 && done < code.second) {
      const ssize_t count = write(file, code.first + done, code.second - done);
      if (count <= 0) fail("has code that cannot be loaded");
      done += (size_t)count;
    }
    void* library = dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) fail(std::string("has code that cannot be loaded: ") + dlerror());
    if (((dcpkg_version_fn)dlsym(library, "dcpkg_version"))() > DCPKG_VERSION) fail("has code of another format");
    ((dcpkg_threads_fn)dlsym(library, "dcpkg_threads"))(threads);
    int64_t count = 0;
    const dcpkg_instance* found = ((dcpkg_instances_fn)dlsym(library, "dcpkg_instances"))(&count);
    const auto prepare = (dcpkg_prepare_fn)dlsym(library, "dcpkg_prepare");
    const auto call = (dcpkg_call_fn)dlsym(library, "dcpkg_call");
    for (int64_t k = 0; k < count; ++k) instances_.push_back({found + k, prepare, call, nullptr});
  }

  static bool fits(const dcpkg_instance& one, const std::vector<Array>& given) {
    size_t next = 0;
    for (int64_t k = 0; k < one.ninputs; ++k) {
      const dcpkg_array& input = one.inputs[k];
      if (input.kind != DCPKG_GIVEN) continue;
      if (next == given.size() || given[next].dtype != input.dtype ||
          given[next].shape != std::vector<int64_t>(input.shape, input.shape + input.ndim) ||
          given[next].bytes.size() != (size_t)input.nbytes)
        return false;
      ++next;
    }
    return next == given.size();
  }

  Instance& fitting(const std::vector<Array>& given) {
    for (Instance& one : instances_)
      if (fits(*one.raw, given)) return one;
    std::string text = "takes other inputs, or has no code for these sizes; the first that it has code for:";
    for (const Array& input : inputs()) {
      text += " " + input.name + " " + input.dtype + "[";
      for (int64_t n : input.shape) text += std::to_string(n) + ",";
      text += "]";
    }
    fail(text);
  }

  // Whether the program writes to what it has of its own.
  bool prepare(Instance& found) {
    const std::lock_guard<std::mutex> held(lock_);
    const dcpkg_instance& one = *found.raw;
    bool writes = false;
    for (int64_t k = 0; k < one.noutputs; ++k)
      writes |= one.outputs[k].kind == DCPKG_WRITTEN && one.inputs[one.outputs[k].place].kind == DCPKG_HELD;
    if (found.prepared) return writes;
    void *blas = one.nsymbols ? library("openblas", "DISTCOMPILE_OPENBLAS") : nullptr;
    void *dnnl = one.nconvolutions ? library("onednn", "DISTCOMPILE_ONEDNN") : nullptr;
    if (blas)
      if (void* set = dlsym(blas, "scipy_openblas_set_num_threads")) ((void (*)(int))set)(1);
    char error[512] = "";
    found.prepared = found.prepare(&one, blas, dnnl, error, sizeof error);
    if (!found.prepared) fail(std::string("cannot be prepared: ") + error);
    for (int64_t k = 0; k < one.noutputs; ++k) {
      const dcpkg_array& output = one.outputs[k];
      if (output.kind != DCPKG_WRITTEN || one.inputs[output.place].kind != DCPKG_HELD) continue;
      const dcpkg_array& input = one.inputs[output.place];
      Array own = like(input);
      std::memcpy(own.bytes.data(), data_ + input.place, own.bytes.size());
      written_.emplace(input.name, std::move(own));
    }
    return writes;
  }

  void* library(const std::string& name, const char* variable) const {
    const char* told = std::getenv(variable);
    const std::string place = told ? told : value("\"" + name + "_at\": \"");
    void* found = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!found) fail("calls " + name + ", which is not at " + place + "; " + variable + " says where it is");
    return found;
  }

  static Array like(const dcpkg_array& one) {
    return {one.name, one.dtype, {one.shape, one.shape + one.ndim}, std::vector<char>((size_t)one.nbytes)};
  }

  static uint32_t crc32(uint32_t crc, const char* bytes, size_t count) {
    static const auto table = [] {
      std::vector<uint32_t> made(256);
      for (uint32_t n = 0; n < 256; ++n) {
        made[n] = n;
        for (int bit = 0; bit < 8; ++bit) made[n] = made[n] & 1 ? 0xEDB88320u ^ made[n] >> 1 : made[n] >> 1;
      }
      return made;
    }();
    crc = ~crc;
    for (size_t k = 0; k < count; ++k) crc = table[(crc ^ (unsigned char)bytes[k]) & 255] ^ crc >> 8;
    return ~crc;
  }
};

}  // namespace distcompile
#endif

// Calls of CuPy's arrays that are made again, for replay.py: which call it is, its memory, its launches, its result.
//
// An Again is a function of Python's, of operands by position. A variant of it is what one call of a kind did, as
// numbers: see variant.py, which writes them. What no variant fits is asked of `learn(again, *operands)`.
// Python's functions are declared as they are in its stable ABI: its headers need not be here. While calls are made,
// other threads run.

typedef uint64_t Word;

struct Object { int64_t references; Object* type; };

extern "C" {
extern Object _Py_NoneStruct;
extern Object* PyExc_MemoryError;
struct Method { const char* name; Object* (*run)(Object*, Object* const*, int64_t); int flags; const char* text; };
Object* PyCMethod_New(Method*, Object*, Object*, Object*);
Object* PyCapsule_New(void*, const char*, void (*)(Object*));
void* PyCapsule_GetPointer(Object*, const char*);
void Py_IncRef(Object*);
void Py_DecRef(Object*);
Object* PyObject_GetAttr(Object*, Object*);
Object* PyObject_Vectorcall(Object*, Object* const*, size_t, Object*);
int PyObject_RichCompareBool(Object*, Object*, int);
Object* PyNumber_Add(Object*, Object*);
Object* PyUnicode_InternFromString(const char*);
Word PyLong_AsUnsignedLongLongMask(Object*);
Object* PyLong_FromLongLong(long long);
Object* PyTuple_New(int64_t);
int PyTuple_SetItem(Object*, int64_t, Object*);
Object* PyTuple_GetItem(Object*, int64_t);
int64_t PyTuple_Size(Object*);
Object* PyList_New(int64_t);
int PyList_SetItem(Object*, int64_t, Object*);
Object* PyErr_Occurred();
int PyErr_ExceptionMatches(Object*);
void PyErr_Clear();
void* PyEval_SaveThread();
void PyEval_RestoreThread(void*);
}

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

const char* const NAME = "distcompile.again";
constexpr int FASTCALL = 0x80, EQUAL = 2, MOST_OPERANDS = 32, MOST_ARGUMENTS = 24, ALIGNED = 16;
enum Source { OPERAND, BLOCK, ARENA, NUMBER };
enum Kind { OTHER, LAID, COUNT };
enum Form { NONE, SAME, ARRAY, TUPLE, LIST };

std::atomic<int64_t> threads{0}, repeats{0};
thread_local const int64_t here = ++threads;  // ids of Python's threads come again
thread_local bool is_noting = false;           // whether a call of this thread is being noted

// A reference.
struct Ref {
  Object* of = nullptr;
  Ref() = default;
  explicit Ref(Object* given) : of(given) {}
  Ref(const Ref& other) : of(other.of) { Py_IncRef(of); }
  Ref(Ref&& other) noexcept : of(other.of) { other.of = nullptr; }
  Ref& operator=(Ref other) noexcept { std::swap(of, other.of); return *this; }
  ~Ref() { if (of) Py_DecRef(of); }
  static Ref to(Object* one) { Py_IncRef(one); return Ref(one); }
  Object* given() { Object* one = of; of = nullptr; return one; }
  explicit operator bool() const { return of; }
};

Object* named(const char* name) { return PyUnicode_InternFromString(name); }

struct Names {
  Object *data = named("data"), *ptr = named("ptr"), *shape = named("shape"), *strides = named("strides"),
         *dtype = named("dtype"), *device = named("device_id"), *is_on = named("is_on"), *settings = named("settings"), *tf32 = named("tf32");
};
const Names& names() { static const Names made; return made; }

Ref attribute(Object* of, Object* name) { return Ref(PyObject_GetAttr(of, name)); }
Ref call(Object* function, Object* argument = nullptr) {
  Object* const arguments[] = {argument};
  return Ref(PyObject_Vectorcall(function, arguments, argument ? 1 : 0, nullptr));
}
bool are_equal(Object* a, Object* b) { return a == b || PyObject_RichCompareBool(a, b, EQUAL) == 1; }

Word word_of(const Ref& number) { return number ? PyLong_AsUnsignedLongLongMask(number.of) : 0; }

// An operand as it is now. of: borrowed.
struct Given { Object* of; Ref data, shape, strides, dtype; Word at; int64_t start; };

// What an operand has to be: equal to `dtype`; an array that lies so; or a number, of the class `dtype`.
struct Operand { int64_t kind; Ref dtype, shape, strides; int64_t start; };
// Two operands that lie in each other: how far the second begins behind the first.
struct Pair { int64_t first, second, distance; };

struct Call {
  Word function;
  int64_t number, undo;  // undo: the call that is made if this one fails; -1: none
  std::vector<Word> arguments;
  std::vector<std::pair<int64_t, int64_t>> words;  // an argument's place, the word that it is
};
struct Place { int64_t source, number, offset; };
struct Made { int64_t form, count; Place place; Ref shape, dtype, strides; };

// held: what `words`, and addresses among the arguments, are part of.
struct Variant {
  int64_t thread, device;
  Word stream;
  Ref kind, settings, tf32, held, alloc, stream_of, current, failed, handle, arena;
  std::vector<Operand> operands;
  std::vector<Pair> pairs;
  std::vector<Ref> sizes;
  Word* words = nullptr;
  std::vector<Place> sources;
  std::vector<Call> calls;
  std::vector<Made> form;  // of the result, parts before the whole
};

struct Again { Ref learn, noting, precision; std::vector<std::shared_ptr<Variant>> variants; };

bool is_read(Given* given, Object* const* operands, int64_t count, const Object* kind) {
  const Names& n = names();
  for (int64_t k = 0; k < count; ++k) {
    Given& one = given[k];
    one.of = operands[k];
    if (one.of->type != kind) continue;
    one.data = attribute(one.of, n.data);
    if (!one.data) return false;
    one.at = word_of(attribute(one.data.of, n.ptr));
    one.shape = attribute(one.of, n.shape);
    one.strides = attribute(one.of, n.strides);
    one.dtype = attribute(one.of, n.dtype);
    if (!one.shape || !one.strides || !one.dtype) return false;
    one.start = (int64_t)(one.at % ALIGNED);
    for (int64_t other = 0, place = 0; other < k; ++other) {
      if (!given[other].data) continue;
      if (given[other].at == one.at) { one.start = ~place; break; }
      ++place;
    }
  }
  return true;
}

bool fits(const Variant& v, const Given* given, int64_t count) {
  if ((int64_t)v.operands.size() != count) return false;
  for (int64_t k = 0; k < count; ++k) {
    const Operand& wanted = v.operands[k];
    const Given& one = given[k];
    if (wanted.kind == COUNT) {
      if (one.of->type != wanted.dtype.of) return false;
      continue;
    }
    if (wanted.kind == OTHER) {
      if (one.data || !are_equal(one.of, wanted.dtype.of)) return false;
      continue;
    }
    if (!one.data || one.start != wanted.start || !are_equal(one.dtype.of, wanted.dtype.of)) return false;
    if (!are_equal(one.shape.of, wanted.shape.of) || !are_equal(one.strides.of, wanted.strides.of)) return false;
  }
  for (const Pair& p : v.pairs)
    if ((int64_t)(given[p.second].at - given[p.first].at) != p.distance) return false;
  return true;
}

// Whether thread, settings, device and stream are those of the variant.
bool is_here(const Variant& v, const Given* given, int64_t count, const Ref& settings, const Ref& tf32) {
  if (v.thread != here || !are_equal(settings.of, v.settings.of) || tf32.of != v.tf32.of) return false;
  if (v.device >= 0) {
    if ((int64_t)word_of(call(v.current.of)) != v.device) return false;
    for (int64_t k = 0; k < count; ++k)
      if (given[k].data && (int64_t)word_of(attribute(given[k].data.of, names().device)) != v.device) return false;
  }
  const Ref stream = call(v.stream_of.of);
  return stream && word_of(attribute(stream.of, names().ptr)) == v.stream;
}

typedef int (*Function)(Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word,
                        Word, Word, Word, Word, Word, Word, Word, Word);
typedef int (*Short)(Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word);

// A function of C whose arguments are whole numbers and pointers: who is called takes as many as it knows.
int invoke(const Call& c) {
  const Word* a = c.arguments.data();
  if (c.arguments.size() <= 12)
    return ((Short)c.function)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]);
  return ((Function)c.function)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13],
                                a[14], a[15], a[16], a[17], a[18], a[19], a[20], a[21], a[22], a[23]);
}

int made(Variant& v, Call& c) {
  for (const auto& [place, word] : c.words) c.arguments[place] = v.words[word];
  return invoke(c);
}

// Makes the calls; the number and the code of one that failed.
std::pair<int64_t, int> all_made(Variant& v) {
  for (Call& c : v.calls) {
    const int code = made(v, c);
    if (!code) continue;
    if (c.undo >= 0) made(v, v.calls[c.undo]);
    return {c.number, code};
  }
  return {-1, 0};
}

Ref array_of(const Variant& v, const Made& m, const Given* given, const std::vector<Ref>& blocks) {
  const Ref& at = m.place.source == OPERAND ? given[m.place.number].data : blocks[m.place.number];
  Ref pointer = at;
  if (m.place.offset) {
    const Ref offset(PyLong_FromLongLong(m.place.offset));
    pointer = Ref(PyNumber_Add(at.of, offset.of));
    if (!pointer) return Ref();
  }
  Object* const arguments[] = {m.shape.of, m.dtype.of, pointer.of, m.strides.of};
  return Ref(PyObject_Vectorcall(v.kind.of, arguments, m.strides.of == &_Py_NoneStruct ? 3 : 4, nullptr));
}

Ref result_of(const Variant& v, const Given* given, const std::vector<Ref>& blocks) {
  std::vector<Ref> parts;
  for (const Made& m : v.form) {
    Ref one;
    if (m.form == NONE) one = Ref::to(&_Py_NoneStruct);
    else if (m.form == SAME) one = Ref::to(given[m.place.number].of);
    else if (m.form == ARRAY) one = array_of(v, m, given, blocks);
    else {
      one = Ref(m.form == TUPLE ? PyTuple_New(m.count) : PyList_New(m.count));
      const size_t first = parts.size() - (size_t)m.count;
      for (int64_t k = 0; one && k < m.count; ++k)
        (m.form == TUPLE ? PyTuple_SetItem : PyList_SetItem)(one.of, k, parts[first + (size_t)k].given());
      parts.resize(first);
    }
    if (!one) return Ref();
    parts.push_back(std::move(one));
  }
  return std::move(parts.back());
}

// The call, made again; null: an error, which is set.
Ref repeated(Variant& v, const Given* given) {
  std::vector<Ref> blocks;
  std::vector<Word> starts;
  blocks.reserve(v.sizes.size());
  for (const Ref& size : v.sizes) {
    blocks.push_back(call(v.alloc.of, size.of));
    if (!blocks.back()) return Ref();
    starts.push_back(word_of(attribute(blocks.back().of, names().ptr)));
  }
  if (v.handle.of != &_Py_NoneStruct && !call(v.handle.of)) return Ref();
  Word arena = 0;
  if (v.arena.of != &_Py_NoneStruct) {
    const Ref told = call(v.arena.of);
    if (!told) return Ref();
    arena = word_of(told);
  }
  for (size_t k = 0; k < v.sources.size(); ++k) {  // nothing of Python's runs from here to the last call
    const Place& p = v.sources[k];
    const Word start = p.source == OPERAND  ? given[p.number].at
                       : p.source == BLOCK  ? starts[p.number]
                       : p.source == NUMBER ? PyLong_AsUnsignedLongLongMask(given[p.number].of)
                                            : arena;
    v.words[k] = start + (Word)p.offset;
  }
  void* const state = PyEval_SaveThread();
  const auto [number, code] = all_made(v);
  PyEval_RestoreThread(state);
  if (number >= 0) {
    const Ref first(PyLong_FromLongLong(number)), second(PyLong_FromLongLong(code));
    Object* const arguments[] = {first.of, second.of};
    Ref(PyObject_Vectorcall(v.failed.of, arguments, 2, nullptr));  // raises
    return Ref();
  }
  return result_of(v, given, blocks);
}

Object* learned(Again* again, Object* self, Object* const* operands, int64_t count) {
  std::vector<Object*> arguments{self};
  arguments.insert(arguments.end(), operands, operands + count);
  const Ref learn = again->learn;
  return PyObject_Vectorcall(learn.of, arguments.data(), arguments.size(), nullptr);
}

Object* run(Object* self, Object* const* operands, int64_t count) {
  Again* const again = (Again*)PyCapsule_GetPointer(self, NAME);
  const Names& n = names();
  if (count > MOST_OPERANDS || again->variants.empty()) return learned(again, self, operands, count);
  const Ref is_on = attribute(again->noting.of, n.is_on), settings = attribute(again->noting.of, n.settings);
  const Ref tf32 = attribute(again->precision.of, n.tf32);
  if (!is_on || !settings || !tf32) return nullptr;
  if (is_noting || !word_of(is_on)) return learned(again, self, operands, count);
  Given given[MOST_OPERANDS];
  const Ref kind = again->variants[0]->kind;  // of all: others may add variants meanwhile
  if (!is_read(given, operands, count, kind.of)) return nullptr;
  for (size_t k = 0; k < again->variants.size(); ++k) {
    const std::shared_ptr<Variant> v = again->variants[k];
    if (!fits(*v, given, count) || !is_here(*v, given, count, settings, tf32)) {
      if (PyErr_Occurred()) return nullptr;
      continue;
    }
    Ref result = repeated(*v, given);
    if (result) return ++repeats, result.given();
    if (!PyErr_ExceptionMatches(PyExc_MemoryError)) return nullptr;
    PyErr_Clear();  // in full it says what is held
    break;
  }
  return learned(again, self, operands, count);
}

Method method = {"again", run, FASTCALL, nullptr};

void forget(Object* capsule) { delete (Again*)PyCapsule_GetPointer(capsule, NAME); }

// What Python wrote: whole numbers, and objects, both in the order in which they are read.
struct Reader {
  const int64_t* at;
  Object* objects;
  int64_t place = 0;
  int64_t number() { return *at++; }
  Ref object() { return Ref::to(PyTuple_GetItem(objects, place++)); }
  Place where() { const int64_t source = number(), which = number(); return {source, which, number()}; }
};

void read_calls(Reader& r, Variant& v) {
  for (int64_t count = r.number(); count; --count) {
    Call c{(Word)r.number(), r.number(), r.number(), {}, {}};
    const int64_t arguments = r.number();
    for (int64_t k = 0; k < arguments; ++k) c.arguments.push_back((Word)r.number());
    c.arguments.resize(arguments <= 12 ? 12 : MOST_ARGUMENTS);
    for (int64_t words = r.number(); words; --words) { const int64_t place = r.number(); c.words.push_back({place, r.number()}); }
    v.calls.push_back(std::move(c));
  }
}

}  // namespace

// A function that knows no variant yet. noting, precision: what says what settings there are.
EXPORT Object* dc_again(Object* learn, Object* noting, Object* precision) {
  Again* const again = new Again{Ref::to(learn), Ref::to(noting), Ref::to(precision), {}};
  const Ref capsule(PyCapsule_New(again, NAME, forget));
  return PyCMethod_New(&method, capsule.of, nullptr, nullptr);
}

// Whether a call of this thread is being noted from now on.
EXPORT int dc_again_note(int is_on) {
  is_noting = is_on;
  return 0;
}

// How many calls were made again in this process.
EXPORT int64_t dc_again_repeats() { return repeats; }

EXPORT int dc_again_forget(Object* capsule) {
  ((Again*)PyCapsule_GetPointer(capsule, NAME))->variants.clear();
  return 0;
}

// One variant more. numbers, objects: see `_Maker` in variant.py.
EXPORT int dc_again_add(Object* capsule, const int64_t* numbers, Object* objects) {
  Reader r{numbers, objects};
  auto v = std::make_shared<Variant>();
  v->thread = here;
  v->device = r.number();
  v->stream = (Word)r.number();
  v->words = (Word*)r.number();
  for (Ref* one : {&v->kind, &v->settings, &v->tf32, &v->held, &v->alloc, &v->stream_of, &v->current, &v->failed,
                   &v->handle, &v->arena}) *one = r.object();
  for (int64_t count = r.number(); count; --count) {
    Operand one{r.number(), r.object(), {}, {}, 0};
    if (one.kind == LAID) { one.shape = r.object(); one.strides = r.object(); one.start = r.number(); }
    v->operands.push_back(std::move(one));
  }
  for (int64_t count = r.number(); count; --count) {
    const int64_t first = r.number(), second = r.number();
    v->pairs.push_back({first, second, r.number()});
  }
  for (int64_t count = r.number(); count; --count) v->sizes.push_back(r.object());
  for (int64_t count = r.number(); count; --count) v->sources.push_back(r.where());
  read_calls(r, *v);
  for (int64_t count = r.number(); count; --count) {
    Made m{r.number(), r.number(), {}, {}, {}, {}};
    m.place = r.where();
    if (m.form == ARRAY) { m.shape = r.object(); m.dtype = r.object(); m.strides = r.object(); }
    v->form.push_back(std::move(m));
  }
  ((Again*)PyCapsule_GetPointer(capsule, NAME))->variants.push_back(std::move(v));
  return 0;
}

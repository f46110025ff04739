"""The C++ that orders lines of numbers: places in order, the first k places, the place of one rank.

In: a line by its address and stride. Out: `TEXT`; each function writes places, i64, with a stride of their own.
Keys: every number becomes an unsigned one of its size whose order is ours (dc_float_key: the sign's bit decides which
bits turn; NaN is the greatest, both zeros are one), so everything below compares integers; descending turns all bits.
Equal keys keep the order of their places. Methods: sort, by counting bytes, the lowest first (Knuth 5.2.5); rank, by
counting bytes, the highest first, and going on with those that share it; the first k, by keeping candidates below a
bound which falls whenever there are twice too many (Hoare's partition), a few by insertion.
"""

TEXT = """\
template <class T> static inline T dc_line_at(const void* x, int64_t at) {
  T bits;
  __builtin_memcpy(&bits, (const char*)x + at * (int64_t)sizeof(T), sizeof(T));
  return bits;
}
template <class T, uint64_t infinity> struct dc_float_key {
  typedef T U;
  static inline U of(U bits) {
    const U sign = (U)((U)1 << (8 * sizeof(U) - 1)), size = (U)(bits & (U)~sign);
    const U key = (U)(bits & sign ? ~bits : bits | sign);
    return size > (U)infinity ? (U)~(U)0 : size == 0 ? sign : key;
  }
};
template <class T, int is_signed> struct dc_integer_key {
  typedef T U;
  static inline U of(U bits) { return (U)(bits ^ (U)((U)is_signed << (8 * sizeof(U) - 1))); }
};
template <class R> static inline typename R::U dc_key(const void* x, int64_t at, typename R::U turn) {
  return (typename R::U)(R::of(dc_line_at<typename R::U>(x, at)) ^ turn);
}
template <class R, class I> struct dc_keyed { typename R::U key; I at; };
template <class P> static inline bool dc_before(const P& a, const P& b) {
  return a.key < b.key || (a.key == b.key && a.at < b.at);
}
// Sorts `from`, of n, into order of keys; `to` is as large. Gives the one of the two that holds the result.
template <class P> static P* dc_sort_keyed(P* from, P* to, int64_t n) {
  enum { bytes = sizeof(from->key) };
  if (n <= 24) {
    for (int64_t i = 1; i < n; ++i) {
      const P moved = from[i];
      int64_t j = i;
      for (; j > 0 && moved.key < from[j - 1].key; --j) from[j] = from[j - 1];
      from[j] = moved;
    }
    return from;
  }
  int64_t counts[bytes][256] = {};
  for (int64_t i = 0; i < n; ++i)
    for (int b = 0; b < bytes; ++b) ++counts[b][(uint8_t)(from[i].key >> 8 * b)];
  for (int b = 0; b < bytes; ++b) {
    int64_t* const count = counts[b];
    if (count[(uint8_t)(from[0].key >> 8 * b)] == n) continue;
    int64_t start = 0;
    for (int v = 0; v < 256; ++v) {
      const int64_t size = count[v];
      count[v] = start;
      start += size;
    }
    for (int64_t i = 0; i < n; ++i) to[count[(uint8_t)(from[i].key >> 8 * b)]++] = from[i];
    P* const other = from;
    from = to;
    to = other;
  }
  return from;
}
template <class R, class I>
static void dc_sort_line(const void* x, int64_t n, int64_t stride, bool descending, int64_t k, int64_t* out,
                         int64_t out_stride, char* scratch) {
  typedef dc_keyed<R, I> P;
  const typename R::U turn = (typename R::U)(descending ? ~(typename R::U)0 : 0);
  P* const pairs = (P*)scratch;
  for (int64_t i = 0; i < n; ++i) pairs[i] = P{dc_key<R>(x, i * stride, turn), (I)i};
  const P* const sorted = dc_sort_keyed(pairs, pairs + n, n);
  for (int64_t i = 0; i < k; ++i) out[i * out_stride] = (int64_t)sorted[i].at;
}
// Puts the k first of n in front, in no order; those of one key by their places.
template <class P> static void dc_part(P* p, int64_t n, int64_t k) {
  int64_t low = 0, high = n - 1;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    const P a = p[low], b = p[middle], c = p[high];
    const P pivot = dc_before(a, b) ? (dc_before(b, c) ? b : dc_before(a, c) ? c : a)
                                    : (dc_before(a, c) ? a : dc_before(b, c) ? c : b);
    int64_t i = low, j = high;
    while (i <= j) {
      while (dc_before(p[i], pivot)) ++i;
      while (dc_before(pivot, p[j])) --j;
      if (i > j) break;
      const P kept = p[i];
      p[i++] = p[j];
      p[j--] = kept;
    }
    if (k - 1 <= j) high = j;
    else if (k - 1 >= i) low = i;
    else return;
  }
}
// Into order of keys and places: a heap, whose time does not depend on the data.
template <class P> static void dc_sort_in_place(P* p, int64_t n) {
  for (int64_t end = n, root = n / 2; end > 1;) {
    if (root > 0) {
      --root;
    } else {
      --end;
      const P kept = p[0];
      p[0] = p[end];
      p[end] = kept;
    }
    const P moved = p[root];
    int64_t hole = root;
    for (int64_t child = 2 * hole + 1; child < end; child = 2 * hole + 1) {
      if (child + 1 < end && dc_before(p[child], p[child + 1])) ++child;
      if (!dc_before(moved, p[child])) break;
      p[hole] = p[child];
      hole = child;
    }
    p[hole] = moved;
  }
}
enum { dc_order_block = 64, dc_few = 16 };
// The k first elements of a line, as far as it was read. A few are in order; else up to 2k + dc_order_block in none.
template <class P, class U> struct dc_firsts {
  P* found;
  int64_t held;
  bool bounded;
  U bound;  // if bounded: what is not below it comes after k others
  void offer(const U* keys, int64_t start, int64_t length, int64_t k) {
    if (bounded) {
      U any = 0;
      for (int64_t i = 0; i < length; ++i) any |= (U)(keys[i] < bound);
      if (!any) return;
    }
    if (k <= dc_few) {
      for (int64_t i = 0; i < length; ++i)
        if (!bounded || keys[i] < bound) insert(keys[i], start + i, k);
      return;
    }
    for (int64_t i = 0; i < length; ++i)
      if (!bounded || keys[i] < bound) found[held++] = P{keys[i], (decltype(P::at))(start + i)};
    if (held > 2 * k) {
      dc_part(found, held, k);
      held = k;
      bound = found[0].key;
      for (int64_t i = 1; i < k; ++i) bound = found[i].key > bound ? found[i].key : bound;
      bounded = true;
    }
  }
  void insert(U key, int64_t at, int64_t k) {
    int64_t j = held < k ? held++ : k - 1;
    for (; j > 0 && key < found[j - 1].key; --j) found[j] = found[j - 1];
    found[j] = P{key, (decltype(P::at))at};
    bounded = held == k;
    bound = found[held - 1].key;
  }
  void finish(int64_t k) {
    if (k <= dc_few) return;
    if (held > k) dc_part(found, held, k);
    dc_sort_in_place(found, k);
  }
};
// Of `lines` lines, at most L, whose elements lie side by side: they are read as they lie.
template <class R, class I, int L>
static void dc_first_places(const void* x, int64_t n, int64_t stride, int64_t lines, bool descending, int64_t k,
                            int64_t* out, int64_t out_stride, int64_t out_step, char* scratch) {
  typedef dc_keyed<R, I> P;
  typedef typename R::U U;
  const U turn = (U)(descending ? ~(U)0 : 0);
  dc_firsts<P, U> firsts[L];
  for (int64_t l = 0; l < lines; ++l) firsts[l] = {(P*)scratch + l * (2 * k + dc_order_block), 0, k == 0, 0};
  for (int64_t start = 0; start < n; start += dc_order_block) {
    const int64_t length = n - start < dc_order_block ? n - start : dc_order_block;
    U keys[L][dc_order_block];
    if (L > 1)
      for (int64_t i = 0; i < length; ++i)
        for (int64_t l = 0; l < lines; ++l) keys[l][i] = dc_key<R>(x, (start + i) * stride + l, turn);
    else if (stride == 1) for (int64_t i = 0; i < length; ++i) keys[0][i] = dc_key<R>(x, start + i, turn);
    else for (int64_t i = 0; i < length; ++i) keys[0][i] = dc_key<R>(x, (start + i) * stride, turn);
    for (int64_t l = 0; l < lines; ++l) firsts[l].offer(keys[l], start, length, k);
  }
  for (int64_t l = 0; l < lines; ++l) {
    firsts[l].finish(k);
    for (int64_t i = 0; i < k; ++i) out[i * out_stride + l * out_step] = (int64_t)firsts[l].found[i].at;
  }
}
template <class R, class I>
static int64_t dc_place_of_rank(const void* x, int64_t n, int64_t stride, int64_t rank, char* scratch) {
  typedef dc_keyed<R, I> P;
  P* const pairs = (P*)scratch;
  for (int64_t i = 0; i < n; ++i) pairs[i] = P{dc_key<R>(x, i * stride, 0), (I)i};
  for (int shift = 8 * (int)sizeof(pairs->key) - 8; shift >= 0 && n > 1; shift -= 8) {
    int64_t counts[256] = {};
    for (int64_t i = 0; i < n; ++i) ++counts[(uint8_t)(pairs[i].key >> shift)];
    int digit = 0;
    while (rank >= counts[digit]) rank -= counts[digit++];
    int64_t kept = 0;
    for (int64_t i = 0; i < n; ++i) {
      const P pair = pairs[i];
      pairs[kept] = pair;
      kept += (uint8_t)(pair.key >> shift) == digit;
    }
    n = kept;
  }
  return (int64_t)pairs[rank].at;
}

"""

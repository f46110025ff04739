"""C++ of attention: the text that stands once in a source that calls it. See attention/native.py.

In: dc_parallel, DC_APART, dc_exp, dc_turn, exp, log, logf declared before it. Out: `dc_attention`,
`dc_attention_backward`.
Scores are held transposed, keys by queries, in panels of two vectors of queries: so the softmax's maxima and sums are
vectors too, keys and values are read as they lie, and only the queries of a block are transposed. Blocks: DC_QUERIES
queries by DC_KEYS keys; only `dc_product` contracts products and sums (as a library's GEMM does).
"""

TEXT = """\
// ---- attention
#ifdef __AVX512F__
enum { dc_wide_nbytes = 64, dc_rows_at_once = 8 };  // 8 rows of 2 vectors: 16 sums of 32 registers
#else
enum { dc_wide_nbytes = 32, dc_rows_at_once = 4 };
#endif
#if defined(__clang__)
#define DC_FUSED
#else
#define DC_FUSED , optimize("fp-contract=fast")
#endif
enum { DC_QUERIES = 256, DC_KEYS = 128 };

DC_INLINE float dc_exponential(float x) { return dc_exp(x); }
DC_INLINE double dc_exponential(double x) { return exp(x); }
DC_INLINE float dc_logarithm(float x) { return logf(x); }
DC_INLINE double dc_logarithm(double x) { return log(x); }

// Element (batch, head, row, column) of an operand; all strides may be 0.
template <class T> struct dc_operand {
  const T* at;
  int64_t batch, head, row, column;
  DC_MEMBER const T* matrix(int64_t b, int64_t h) const { return at + b * batch + h * head; }
};

struct dc_sizes { int64_t batch, heads, key_heads, queries, keys; };

// c[R rows of V vectors] = a b, c + a b, or factors * c + a b (MODE 0, 1, 2). a: rows RA, columns KA apart.
template <class T, int V, int RA, int KA, int LDB, int LDC, int MODE>
__attribute__((noinline DC_FUSED)) static void dc_product(const T* a, const T* b, int64_t depth, T* c,
                                                          const T* factors) {
#if defined(__clang__)
#pragma clang fp contract(fast)
#endif
  typedef T vector __attribute__((vector_size(dc_wide_nbytes)));
  enum { lanes = dc_wide_nbytes / sizeof(T), R = dc_rows_at_once };
  vector sum[R][V];
  for (int v = 0; v < V; ++v) {
    for (int r = 0; r < R; ++r) {
      const vector* const have = (const vector*)(c + r * LDC + v * lanes);
      sum[r][v] = MODE == 0 ? vector{} : MODE == 1 ? *have : *have * ((const vector*)factors)[v];
    }
  }
  for (int64_t p = 0; p < depth; ++p, b += LDB) {
    vector row[V];
    for (int v = 0; v < V; ++v) row[v] = *(const vector*)(b + v * lanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) sum[r][v] += a[r * RA + p * KA] * row[v];
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) *(vector*)(c + r * LDC + v * lanes) = sum[r][v];
}

template <class T> DC_APART static void dc_turn(const T* from, int64_t ldf, T* to, int64_t ldt) {
  dc_turn<T, dc_wide_nbytes>(from, ldf, to, ldt);
}

// A row of W elements, the first `have` from memory, times factor; the rest 0.
template <int W, class S, class T>
DC_INLINE void dc_copy_row(const S* from, int64_t column, int64_t have, T factor, T* to) {
  if (column == 1) {
#pragma omp simd
    for (int64_t k = 0; k < have; ++k) to[k] = (T)from[k] * factor;
  } else {
    for (int64_t k = 0; k < have; ++k) to[k] = (T)from[k * column] * factor;
  }
  for (int64_t k = have; k < W; ++k) to[k] = 0;
}

// Rows of W elements, the first `columns` of the first `rows` from memory, times factor; the rest 0.
template <int W, class S, class T>
DC_APART static void dc_copy_rows(const S* from, int64_t row, int64_t column, int64_t rows, int64_t columns,
                                  int64_t padded, T factor, T* to) {
  for (int64_t r = 0; r < padded; ++r, from += row, to += W)
    dc_copy_row<W>(from, column, r < rows ? columns : 0, factor, to);
}

// The shapes of one call. MASK: 0 none, 1 added, 2 truth values.
template <class T_, int E_, int EV_, bool CAUSAL_, int MASK_, class M_> struct dc_attention_of {
  typedef T_ T;
  typedef M_ M;
  enum { lanes = dc_wide_nbytes / sizeof(T), R = dc_rows_at_once, W = 2 * lanes, panels = DC_QUERIES / W };
  enum { E = E_, EV = EV_, CAUSAL = CAUSAL_, MASK = MASK_ };
  enum { EP = (E + lanes - 1) / lanes * lanes, EVP = (EV + lanes - 1) / lanes * lanes };
};

// How many of `keys` keys from j0 on the queries of a panel that ends before `stop` see.
template <class A> DC_INLINE int64_t dc_seen(int64_t keys, int64_t j0, int64_t stop) {
  const int64_t seen = A::CAUSAL ? stop - j0 : keys;
  return seen < 0 ? 0 : seen < keys ? seen : keys;
}

DC_INLINE int64_t dc_at_most(int64_t a, int64_t b) { return a < b ? a : b; }
DC_INLINE int64_t dc_whole(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Queries (or their gradients) of a block in rows and, panel after panel, in columns.
template <class A, int EP, class T>
DC_APART static void dc_load_queries(const T* from, int64_t row, int64_t column, int64_t count, int64_t width,
                                     int64_t padded, T factor, T* rows, T* columns) {
  dc_copy_rows<EP>(from, row, column, count, width, padded, factor, rows);
  for (int64_t i = 0; i < padded; i += A::lanes)
    for (int64_t e = 0; e < EP; e += A::lanes)
      dc_turn<T>(rows + i * EP + e, EP, columns + (i / A::W * EP + e) * A::W + i % A::W, A::W);
}

// Columns of a panel, back in rows: `count` rows of `width` elements, times factors.
template <class A, int EP, class T>
DC_APART static void dc_store_panel(const T* panel, const T* factors, int64_t count, int64_t width, T* rows, T* to,
                                    int64_t row) {
  for (int64_t i = 0; i < A::W; i += A::lanes)
    for (int64_t e = 0; e < EP; e += A::lanes) dc_turn<T>(panel + e * A::W + i, A::W, rows + i * EP + e, EP);
  for (int64_t i = 0; i < count; ++i) {
    const T factor = factors[i];
#pragma omp simd
    for (int64_t e = 0; e < width; ++e) to[i * row + e] = rows[i * EP + e] * factor;
  }
}

// What masks say, on `seen` keys of a panel whose rows lie LD apart. i0, count: its queries; spare: two panels.
template <class A, int LD, class T>
DC_APART static void dc_hide(T* scores, int64_t seen, int64_t i0, int64_t j0, int64_t count, const typename A::M* mask,
                             int64_t row, int64_t column, T* spare) {
  const T hidden = -(T)__builtin_inf();
  if (A::MASK) {
    T* const turned = spare + A::W * DC_KEYS;
    dc_copy_rows<DC_KEYS>(mask + i0 * row + j0 * column, row, column, count, seen, A::W, (T)1, spare);
    for (int64_t i = 0; i < A::W; i += A::lanes)
      for (int64_t j = 0; j < seen; j += A::lanes)
        dc_turn<T>(spare + i * DC_KEYS + j, DC_KEYS, turned + j * A::W + i, A::W);
    for (int64_t j = 0; j < seen; ++j) {
#pragma omp simd
      for (int i = 0; i < A::W; ++i) {
        const T said = turned[j * A::W + i], score = scores[j * LD + i];
        scores[j * LD + i] = A::MASK == 1 ? score + said : said != 0 ? score : hidden;
      }
    }
  }
  if (A::CAUSAL)
    for (int64_t j = i0 - j0 + 1 > 0 ? i0 - j0 + 1 : 0; j < seen; ++j) {
      const int64_t from = dc_at_most(j0 + j - i0, A::W);
      for (int64_t i = 0; i < from; ++i) scores[j * LD + i] = hidden;
    }
}

// One panel's scores to weights: greatest, sum: of each query so far. factors: what earlier sums are to be taken times.
template <class A, class T>
DC_APART static void dc_softmax(T* scores, int64_t seen, T* greatest, T* sum, T* factors) {
  typedef T vector __attribute__((vector_size(dc_wide_nbytes)));
  enum { W = A::W, lanes = A::lanes };
  vector top0 = *(vector*)greatest, top1 = *(vector*)(greatest + lanes);
  for (int64_t j = 0; j < seen; ++j) {
    const vector a = *(const vector*)(scores + j * W), b = *(const vector*)(scores + j * W + lanes);
    top0 = a > top0 ? a : top0;
    top1 = b > top1 ? b : top1;
  }
  T top[W] __attribute__((aligned(dc_wide_nbytes))), total[W] __attribute__((aligned(dc_wide_nbytes)));
  *(vector*)top = top0;
  *(vector*)(top + lanes) = top1;
#pragma omp simd
  for (int i = 0; i < W; ++i) {
    const T have = greatest[i], now = top[i];
    greatest[i] = now;
    top[i] = now == -(T)__builtin_inf() ? (T)0 : now;
    factors[i] = dc_exponential(have - top[i]);
    total[i] = sum[i] * factors[i];
  }
  for (int64_t j = 0; j < seen; ++j) {
#pragma omp simd
    for (int i = 0; i < W; ++i) {
      const T weight = dc_exponential(scores[j * W + i] - top[i]);
      scores[j * W + i] = weight;
      total[i] += weight;
    }
  }
  for (int i = 0; i < W; ++i) sum[i] = total[i];
}

// Queries i0 .. i0 + DC_QUERIES of one head; out: the first of their rows. empty: what one that sees nothing gives.
template <class A, class T>
DC_APART static void dc_attend(const dc_sizes& n, dc_operand<T> q, dc_operand<T> k, dc_operand<T> v,
                               dc_operand<typename A::M> mask, T scale, T empty, int64_t b, int64_t h, int64_t i0,
                               T* out, T* lse, T* at) {
  enum { W = A::W, R = A::R, EP = A::EP, EVP = A::EVP };
  const int64_t count = dc_at_most(n.queries - i0, DC_QUERIES), padded = dc_whole(count, W);
  const int64_t key_head = h / (n.heads / n.key_heads);
  T* const rows = at;                                // queries, later results: [DC_QUERIES][EP or EVP]
  T* const turned = rows + DC_QUERIES * (EP > EVP ? EP : EVP);  // [panels][EP][W]
  T* const keys = turned + DC_QUERIES * EP;          // [DC_KEYS][EP]
  T* const values = keys + DC_KEYS * EP;             // [DC_KEYS][EVP]
  T* const results = values + DC_KEYS * EVP;         // [panels][EVP][W]
  T* const scores = results + DC_QUERIES * EVP;      // [DC_KEYS][W]
  T* const spare = scores + DC_KEYS * W;             // two more of them, for a mask
  T* const greatest = spare + (A::MASK ? 2 * DC_KEYS * W : 0);
  T* const sum = greatest + DC_QUERIES;
  T* const factors = sum + DC_QUERIES;
  dc_load_queries<A, EP>(q.matrix(b, h) + i0 * q.row, q.row, q.column, count, (int64_t)A::E, padded, scale, rows,
                         turned);
  for (int64_t i = 0; i < padded; ++i) greatest[i] = -(T)__builtin_inf(), sum[i] = 0;
  __builtin_memset(results, 0, padded * EVP * sizeof(T));
  const int64_t end = dc_seen<A>(n.keys, 0, i0 + count);
  for (int64_t j0 = 0; j0 < end; j0 += DC_KEYS) {
    const int64_t there = dc_at_most(end - j0, DC_KEYS);
    const T* const key = k.matrix(b, key_head) + j0 * k.row;
    const T* const value = v.matrix(b, key_head) + j0 * v.row;
    dc_copy_rows<EP>(key, k.row, k.column, there, (int64_t)A::E, dc_whole(there, R), (T)1, keys);
    dc_copy_rows<EVP>(value, v.row, v.column, there, (int64_t)A::EV, there, (T)1, values);
    for (int64_t c = 0; c < padded / W; ++c) {
      const int64_t seen = dc_seen<A>(there, j0, dc_at_most(i0 + (c + 1) * W, n.queries));
      if (!seen) continue;
      for (int64_t j = 0; j < seen; j += R)
        dc_product<T, 2, EP, 1, W, W, 0>(keys + j * EP, turned + c * EP * W, A::E, scores + j * W, factors);
      const int64_t own = dc_at_most(count - c * W, W);
      dc_hide<A, W>(scores, seen, i0 + c * W, j0, own, mask.matrix(b, h), mask.row, mask.column, spare);
      dc_softmax<A>(scores, seen, greatest + c * W, sum + c * W, factors);
      for (int64_t e = 0; e < EVP; e += R)
        dc_product<T, 2, 1, EVP, W, W, 2>(values + e, scores, seen, results + (c * EVP + e) * W, factors);
    }
  }
  for (int64_t i = 0; i < count; ++i) lse[i] = greatest[i] + dc_logarithm(sum[i]) + (sum[i] == 0 ? empty : (T)0);
  for (int64_t i = 0; i < padded; ++i) sum[i] = sum[i] == 0 ? empty : 1 / sum[i];
  for (int64_t c = 0; c < padded / W; ++c)
    dc_store_panel<A, EVP>(results + c * EVP * W, sum + c * W, dc_at_most(count - c * W, W), (int64_t)A::EV, rows,
                           out + c * W * n.heads * A::EV, n.heads * A::EV);
}

// f(item, memory) for all items, shared out among threads: `places` of them with `share` bytes of scratch memory each.
template <class F>
static void dc_share_out(int64_t items, int64_t places, char* scratch, int64_t share, const F& f) {
  dc_parallel(places, 1, [&](int64_t from, int64_t to) {
    for (int64_t item = 0; item < items; ++item)
      if (item % places >= from && item % places < to) f(item, scratch + from * share);
  }, 2);
}

// out: [batch, queries, heads, EV]. lse: [batch, heads, queries].
template <class A, class T>
static void dc_attention(const dc_sizes& n, dc_operand<T> q, dc_operand<T> k, dc_operand<T> v,
                         dc_operand<typename A::M> mask, T scale, T empty, T* out, T* lse, char* scratch, int64_t share,
                         int64_t places) {
  const int64_t blocks = (n.queries + DC_QUERIES - 1) / DC_QUERIES, items = n.batch * n.heads * blocks;
  dc_share_out(items, places, scratch, share, [&](int64_t item, char* memory) {
    const int64_t h = item % n.heads, b = item / n.heads % n.batch, i0 = item / n.heads / n.batch * DC_QUERIES;
    dc_attend<A>(n, q, k, v, mask, scale, empty, b, h, i0, out + ((b * n.queries + i0) * n.heads + h) * A::EV,
                 lse + (b * n.heads + h) * n.queries + i0, (T*)memory);
  });
}

// The backward: what a block of queries adds to the gradients of one head's keys and values (dk, dv), and its own (dq).
template <class A, class T> struct dc_back {
  enum { W = A::W, R = A::R, EP = A::EP, EVP = A::EVP };
  T *dk, *dv;                                        // sums: [keys, whole R][EP or EVP]
  T *rows, *turned, *grads, *grads_turned, *keys, *values, *dq, *weights, *slopes, *spare, *lse, *shift;

  DC_MEMBER dc_back(T* at, int64_t keys_in_all) {
    const int64_t padded = dc_whole(keys_in_all, R);
    T** const parts[] = {&dk, &dv, &rows, &turned, &grads, &grads_turned, &keys, &values, &dq, &weights, &slopes,
                         &spare, &lse, &shift};
    const int64_t sizes[] = {padded * EP, padded * EVP, DC_QUERIES * EP, DC_QUERIES * EP, DC_QUERIES * EVP,
                             DC_QUERIES * EVP, DC_KEYS * EP, DC_KEYS * EVP, DC_QUERIES * EP, DC_KEYS * DC_QUERIES,
                             DC_KEYS * DC_QUERIES, A::MASK ? 2 * DC_KEYS * W : 0, DC_QUERIES, DC_QUERIES};
    for (int part = 0; part < 14; ++part) {
      *parts[part] = at;
      at += sizes[part];
    }
  }

  // Weights of one panel from its scores, and the slope of what is minimised in each score.
  DC_MEMBER void slope(int64_t c, int64_t seen, int64_t own) const {
    T* const weight = weights + c * W;
    T* const grad = slopes + c * W;
    const T *const less = lse + c * W, *const by = shift + c * W;
    for (int64_t j = 0; j < seen; ++j) {
#pragma omp simd
      for (int i = 0; i < W; ++i) {
        const T p = dc_exponential(weight[j * DC_QUERIES + i] - less[i]);
        weight[j * DC_QUERIES + i] = p;
        grad[j * DC_QUERIES + i] = p * (grad[j * DC_QUERIES + i] - by[i]);
      }
      for (int64_t i = own; i < W; ++i) weight[j * DC_QUERIES + i] = grad[j * DC_QUERIES + i] = 0;
    }
    for (int64_t j = seen; j < dc_whole(seen, R); ++j)
      for (int i = 0; i < W; ++i) weight[j * DC_QUERIES + i] = grad[j * DC_QUERIES + i] = 0;
  }

  // c[R rows] += a b for all columns of c.
  template <int WIDTH> DC_MEMBER static void add(const T* a, const T* b, int64_t depth, T* c) {
    int64_t e = 0;
    for (; e + W <= WIDTH; e += W) dc_product<T, 2, DC_QUERIES, 1, WIDTH, WIDTH, 1>(a, b + e, depth, c + e, c);
    if (WIDTH % W) dc_product<T, 1, DC_QUERIES, 1, WIDTH, WIDTH, 1>(a, b + e, depth, c + e, c);
  }

  // Keys j0 .. j0 + there (loaded), queries i0 .. i0 + count.
  DC_MEMBER void block(const dc_sizes& n, int64_t i0, int64_t count, int64_t j0, int64_t there,
                       const typename A::M* mask, int64_t mask_row, int64_t mask_column) const {
    const int64_t panels = (count + W - 1) / W;
    for (int64_t c = 0; c < panels; ++c) {
      const int64_t seen = dc_seen<A>(there, j0, dc_at_most(i0 + (c + 1) * W, n.queries));
      for (int64_t j = 0; j < seen; j += R) {
        dc_product<T, 2, EP, 1, W, DC_QUERIES, 0>(keys + j * EP, turned + c * EP * W, A::E,
                                                  weights + j * DC_QUERIES + c * W, lse);
        dc_product<T, 2, EVP, 1, W, DC_QUERIES, 0>(values + j * EVP, grads_turned + c * EVP * W, A::EV,
                                                   slopes + j * DC_QUERIES + c * W, lse);
      }
      const int64_t own = dc_at_most(count - c * W, W);
      dc_hide<A, DC_QUERIES>(weights + c * W, seen, i0 + c * W, j0, own, mask, mask_row, mask_column, spare);
      slope(c, seen, own);
      for (int64_t e = 0; e < EP && seen; e += R)
        dc_product<T, 2, 1, EP, DC_QUERIES, W, 1>(keys + e, slopes + c * W, seen, dq + (c * EP + e) * W, lse);
    }
    for (int64_t j = 0, c = 0; j < there; j += R) {
      while (c < panels && dc_seen<A>(there, j0, dc_at_most(i0 + (c + 1) * W, n.queries)) <= j) ++c;
      const int64_t depth = (panels - c) * W, from = j * DC_QUERIES + c * W;
      add<EVP>(weights + from, grads + c * W * EVP, depth, dv + (j0 + j) * EVP);
      add<EP>(slopes + from, rows + c * W * EP, depth, dk + (j0 + j) * EP);
    }
  }
};

// The sum of products of N numbers, N whole vectors: always in the same order.
template <int N, class T> DC_INLINE T dc_dot(const T* a, const T* b) {
  typedef T vector __attribute__((vector_size(dc_wide_nbytes)));
  enum { lanes = dc_wide_nbytes / sizeof(T) };
  vector sums = {};
  for (int k = 0; k < N; k += lanes) sums += *(const vector*)(a + k) * *(const vector*)(b + k);
  T sum = 0;
  for (int k = 0; k < lanes; ++k) sum += sums[k];
  return sum;
}

// Head h and its block of queries from i0 on. g, out: [batch, queries, heads, EV]; dq: [batch, queries, heads, E].
template <class A, class T>
DC_APART static void dc_attend_back(const dc_back<A, T>& at, const dc_sizes& n, dc_operand<T> g, dc_operand<T> g_lse,
                                    dc_operand<T> out, dc_operand<T> lse, dc_operand<T> q, dc_operand<T> k,
                                    dc_operand<T> v, dc_operand<typename A::M> mask, T scale, int64_t b, int64_t h,
                                    int64_t i0, T* dq) {
  enum { W = A::W, EP = A::EP, EVP = A::EVP };
  const int64_t count = dc_at_most(n.queries - i0, DC_QUERIES), padded = dc_whole(count, W);
  const int64_t key_head = h / (n.heads / n.key_heads);
  dc_load_queries<A, EP>(q.matrix(b, h) + i0 * q.row, q.row, q.column, count, (int64_t)A::E, padded, scale, at.rows,
                         at.turned);
  dc_load_queries<A, EVP>(g.matrix(b, h) + i0 * g.row, g.row, g.column, count, (int64_t)A::EV, padded, (T)1, at.grads,
                          at.grads_turned);
  for (int64_t i = 0; i < padded; ++i) at.lse[i] = at.shift[i] = 0;
  for (int64_t i = 0; i < count; ++i) {
    T result[EVP] __attribute__((aligned(dc_wide_nbytes)));
    dc_copy_row<EVP>(out.matrix(b, h) + (i0 + i) * out.row, out.column, (int64_t)A::EV, (T)1, result);
    const T sum = dc_dot<EVP>(result, at.grads + i * EVP);
    const T have = lse.matrix(b, h)[(i0 + i) * lse.row];
    at.lse[i] = have == -(T)__builtin_inf() ? (T)0 : have;
    at.shift[i] = sum - g_lse.matrix(b, h)[(i0 + i) * g_lse.row];
  }
  __builtin_memset(at.dq, 0, padded * EP * sizeof(T));
  const int64_t end = dc_seen<A>(n.keys, 0, i0 + count);
  for (int64_t j0 = 0; j0 < end; j0 += DC_KEYS) {
    const int64_t there = dc_at_most(end - j0, DC_KEYS), whole = dc_whole(there, A::R);
    const T* const key = k.matrix(b, key_head) + j0 * k.row;
    const T* const value = v.matrix(b, key_head) + j0 * v.row;
    dc_copy_rows<EP>(key, k.row, k.column, there, (int64_t)A::E, whole, (T)1, at.keys);
    dc_copy_rows<EVP>(value, v.row, v.column, there, (int64_t)A::EV, whole, (T)1, at.values);
    at.block(n, i0, count, j0, there, mask.matrix(b, h), mask.row, mask.column);
  }
  for (int64_t i = 0; i < padded; ++i) at.shift[i] = scale;
  for (int64_t c = 0; c < padded / W; ++c)
    dc_store_panel<A, EP>(at.dq + c * EP * W, at.shift, dc_at_most(count - c * W, W), (int64_t)A::E, at.rows,
                          dq + c * W * n.heads * A::E, n.heads * A::E);
}

// dq: [batch, queries, heads, E]. dk, dv: [batch, keys, key heads, E or EV]. One thread takes a head of keys.
template <class A, class T>
static void dc_attention_backward(const dc_sizes& n, dc_operand<T> g, dc_operand<T> g_lse, dc_operand<T> out,
                                  dc_operand<T> lse, dc_operand<T> q, dc_operand<T> k, dc_operand<T> v,
                                  dc_operand<typename A::M> mask, T scale, T* dq, T* dk, T* dv, char* scratch,
                                  int64_t share, int64_t places) {
  const int64_t group = n.heads / n.key_heads;
  dc_share_out(n.batch * n.key_heads, places, scratch, share, [&](int64_t item, char* memory) {
    const int64_t key_head = item % n.key_heads, b = item / n.key_heads;
    const dc_back<A, T> at((T*)memory, n.keys);
    const int64_t padded = dc_whole(n.keys, A::R);
    __builtin_memset(at.dk, 0, padded * A::EP * sizeof(T));
    __builtin_memset(at.dv, 0, padded * A::EVP * sizeof(T));
    for (int64_t h = key_head * group; h < (key_head + 1) * group; ++h)
      for (int64_t i0 = 0; i0 < n.queries; i0 += DC_QUERIES)
        dc_attend_back<A>(at, n, g, g_lse, out, lse, q, k, v, mask, scale, b, h, i0,
                          dq + ((b * n.queries + i0) * n.heads + h) * A::E);
    for (int64_t j = 0; j < n.keys; ++j) {
      T* const key = dk + ((b * n.keys + j) * n.key_heads + key_head) * A::E;
      T* const value = dv + ((b * n.keys + j) * n.key_heads + key_head) * A::EV;
      for (int64_t e = 0; e < A::E; ++e) key[e] = at.dk[j * A::EP + e];
      for (int64_t e = 0; e < A::EV; ++e) value[e] = at.dv[j * A::EVP + e];
    }
  });
}

""".replace("DC_MEMBER static", "static inline __attribute__((always_inline))").replace(
    "DC_MEMBER", "inline __attribute__((always_inline))"
)

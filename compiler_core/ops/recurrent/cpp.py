"""C++ of the recurrent layers: the text that stands once in a source that calls them. See recurrent/native.py.

In: dc_exp, dc_tanh, exp and tanh declared before it. Out: templates `dc_recurrent` and `dc_recurrent_backward`.
Only `dc_tile` contracts products and sums (as a library's GEMM does); the pointwise part rounds as all our code does.
"""

TEXT = """\
// ---- recurrent layers
#ifdef __AVX512F__
enum { dc_vector_nbytes = 64, dc_few_rows = 4 };  // 12 rows of 2 vectors, 2 more and a factor: 27 of 32 registers
#else
enum { dc_vector_nbytes = 32, dc_few_rows = 2 };
#endif
enum { dc_many_rows = 3 * dc_few_rows };
#if defined(__clang__)
#define DC_CONTRACTED
#else
#define DC_CONTRACTED , optimize("fp-contract=fast")
#endif

// Element (r, j) of an operand with contiguous rows; C = 0: all columns are one element.
template <class T, int C> struct dc_rows {
  const T* at;
  int64_t row;
  DC_INLINE_MEMBER T operator()(int64_t r, int64_t j) const { return at[r * row + C * j]; }
};

struct dc_sequence { const int64_t (*runs)[2]; int64_t count, steps, batch; bool reverse; };
struct dc_step { int64_t size, row; };  // the sequences that reach it, its first row

// The steps as they are visited; before the first and after the last stands one that nothing reaches.
static void dc_fill_steps(const dc_sequence& sequence, bool turned, dc_step* steps) {
  steps[-1] = steps[sequence.steps] = dc_step{0, 0};
  int64_t row = 0, place = 0;
  for (int64_t run = 0; run < sequence.count; ++run)
    for (int64_t k = 0; k < sequence.runs[run][1]; ++k, ++place) {
      steps[turned ? sequence.steps - 1 - place : place] = dc_step{sequence.runs[run][0], row};
      row += sequence.runs[run][0];
    }
}

// c[R rows] = a[R rows] b: rows of a lie LDA apart, of c LDC; b is packed, V vectors a row.
template <class T, int R, int V, int LDA, int LDC>
__attribute__((noinline DC_CONTRACTED)) static void dc_tile(const T* a, const T* b, int64_t depth, T* c) {
#if defined(__clang__)
#pragma clang fp contract(fast)
#endif
  typedef T vector __attribute__((vector_size(dc_vector_nbytes)));
  enum { lanes = dc_vector_nbytes / sizeof(T) };
  vector sum[R][V];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) sum[r][v] = vector{};
  for (int64_t p = 0; p < depth; ++p, b += V * lanes) {
    vector row[V];
    for (int v = 0; v < V; ++v) row[v] = *(const vector*)(b + v * lanes);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) sum[r][v] += a[r * LDA + p] * row[v];
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) *(vector*)(c + r * LDC + v * lanes) = sum[r][v];
}

template <class T, int V, int LDA, int LDC>
DC_INLINE void dc_tiles(int64_t rows, const T* a, const T* b, int64_t depth, T* c) {
  if (rows > 2 * dc_few_rows) dc_tile<T, 3 * dc_few_rows, V, LDA, LDC>(a, b, depth, c);
  else if (rows > dc_few_rows) dc_tile<T, 2 * dc_few_rows, V, LDA, LDC>(a, b, depth, c);
  else dc_tile<T, dc_few_rows, V, LDA, LDC>(a, b, depth, c);
}

DC_INLINE float dc_logistic(float x) { return 1.0f / (1.0f + dc_exp(-x)); }
DC_INLINE double dc_logistic(double x) { return 1.0 / (1.0 + exp(-x)); }
DC_INLINE float dc_tangent(float x) { return dc_tanh(x); }
DC_INLINE double dc_tangent(double x) { return tanh(x); }

// ---- what the cells do with n hidden units from unit j0 of a row on. z: the state's product, a gate every W elements.
// prior: the state before (LSTM: c). state: where the next step finds h, or the gates' gradient.

template <class T, bool RELU> struct dc_rnn {
  enum { gates = 1, has_cells = 0, has_carry = 0 };
  template <int H, int W, class X, class B>
  DC_INLINE_MEMBER static void forward(int n, int64_t j0, int64_t row, const T* z, const T* prior, X x, B b, T* h,
                                       T* cells, T* saved, T* state) {
#pragma omp simd
    for (int j = 0; j < n; ++j) {
      const T sum = z[j] + b(0, j0 + j) + x(row, j0 + j);
      h[row * H + j0 + j] = state[j0 + j] = RELU ? (sum < 0 ? (T)0 : sum) : dc_tangent(sum);
    }
  }
  template <int H, class G0, class G1, class G2, class HH, class CC, class SS>
  DC_INLINE_MEMBER static void backward(int n, int64_t j0, int64_t row, const T* back, const T* prior, G0 g, G1, G2,
                                        HH h, CC, SS, T* carry, T* dx, T* dq, T* state) {
#pragma omp simd
    for (int j = 0; j < n; ++j) {
      const T dh = g(row, j0 + j) + back[j], out = h(row, j0 + j);
      dx[row * H + j0 + j] = state[j0 + j] = RELU ? (out <= 0 ? (T)0 : dh) : dh * (1 - out * out);
    }
  }
};

template <class T> struct dc_gru {
  enum { gates = 3, has_cells = 0, has_carry = 1 };
  template <int H, int W, class X, class B>
  DC_INLINE_MEMBER static void forward(int n, int64_t j0, int64_t row, const T* z, const T* prior, X x, B b, T* h,
                                       T* cells, T* saved, T* state) {
    T* const kept = saved + row * 4 * H + j0;
#pragma omp simd
    for (int j = 0; j < n; ++j) {
      const int64_t u = j0 + j;
      const T r = dc_logistic(z[j] + b(0, u) + x(row, u));
      const T update = dc_logistic(z[W + j] + b(0, H + u) + x(row, H + u));
      const T q = z[2 * W + j] + b(0, 2 * H + u);
      const T fresh = dc_tangent(x(row, 2 * H + u) + r * q);
      kept[j] = r;
      kept[H + j] = update;
      kept[2 * H + j] = fresh;
      kept[3 * H + j] = q;
      h[row * H + u] = state[u] = fresh + update * (prior[j] - fresh);
    }
  }
  template <int H, class G0, class G1, class G2, class HH, class CC, class SS>
  DC_INLINE_MEMBER static void backward(int n, int64_t j0, int64_t row, const T* back, const T* prior, G0 g, G1, G2 gs,
                                        HH, CC, SS s, T* carry, T* dx, T* dq, T* state) {
#pragma omp simd
    for (int j = 0; j < n; ++j) {
      const int64_t u = j0 + j;
      const T dh = g(row, u) + back[j] + carry[u];
      const T r = s(row, u), update = s(row, H + u), fresh = s(row, 2 * H + u), q = s(row, 3 * H + u);
      const T dn = (dh * (1 - update) + gs(row, 2 * H + u)) * (1 - fresh * fresh);
      const T dr = (dn * q + gs(row, u)) * (r * (1 - r));
      const T dz = (dh * (prior[j] - fresh) + gs(row, H + u)) * (update * (1 - update));
      const T of_q = dn * r + gs(row, 3 * H + u);
      T* const to = dx + row * 3 * H + u;
      to[0] = state[u] = dr;
      to[H] = state[H + u] = dz;
      to[2 * H] = dn;
      dq[row * H + u] = state[2 * H + u] = of_q;
      carry[u] = dh * update;
    }
  }
};

template <class T> struct dc_lstm {
  enum { gates = 4, has_cells = 1, has_carry = 1 };
  template <int H, int W, class X, class B>
  DC_INLINE_MEMBER static void forward(int n, int64_t j0, int64_t row, const T* z, const T* prior, X x, B b, T* h,
                                       T* cells, T* saved, T* state) {
    T* const kept = saved + row * 4 * H + j0;
#pragma omp simd
    for (int j = 0; j < n; ++j) {
      const int64_t u = j0 + j;
      const T i = dc_logistic(z[j] + b(0, u) + x(row, u));
      const T f = dc_logistic(z[W + j] + b(0, H + u) + x(row, H + u));
      const T g = dc_tangent(z[2 * W + j] + b(0, 2 * H + u) + x(row, 2 * H + u));
      const T o = dc_logistic(z[3 * W + j] + b(0, 3 * H + u) + x(row, 3 * H + u));
      const T c = f * prior[j] + i * g;
      kept[j] = i;
      kept[H + j] = f;
      kept[2 * H + j] = g;
      kept[3 * H + j] = o;
      cells[row * H + u] = c;
      h[row * H + u] = state[u] = o * dc_tangent(c);
    }
  }
  template <int H, class G0, class G1, class G2, class HH, class CC, class SS>
  DC_INLINE_MEMBER static void backward(int n, int64_t j0, int64_t row, const T* back, const T* prior, G0 g, G1 gc,
                                        G2 gs, HH, CC cells, SS s, T* carry, T* dx, T* dq, T* state) {
#pragma omp simd
    for (int j = 0; j < n; ++j) {
      const int64_t u = j0 + j;
      const T dh = g(row, u) + back[j], c = dc_tangent(cells(row, u));
      const T i = s(row, u), f = s(row, H + u), fresh = s(row, 2 * H + u), o = s(row, 3 * H + u);
      const T dc = carry[u] + gc(row, u) + dh * o * (1 - c * c);
      T* const to = dx + row * 4 * H + u;
      to[0] = state[u] = (dc * fresh + gs(row, u)) * (i * (1 - i));
      to[H] = state[H + u] = (dc * prior[j] + gs(row, H + u)) * (f * (1 - f));
      to[2 * H] = state[2 * H + u] = (dc * i + gs(row, 2 * H + u)) * (1 - fresh * fresh);
      to[3 * H] = state[3 * H + u] = (dh * c + gs(row, 3 * H + u)) * (o * (1 - o));
      carry[u] = dc * f;
    }
  }
};

template <class T> DC_INLINE T* dc_aligned(T* at) {
  return (T*)(((uint64_t)at + dc_vector_nbytes - 1) / dc_vector_nbytes * dc_vector_nbytes);
}

// One block of V vectors of hidden units for all sequences of a step.
template <class Cell, int H, int LDA, int V, class T, class X, class B, class F>
DC_INLINE void dc_forward_block(int n, int64_t j0, dc_step step, dc_step before, const T* panel, const T* now, T* next,
                                X x, B b, F last0, T* h, T* cells, T* saved) {
  enum { lanes = dc_vector_nbytes / sizeof(T), W = V * lanes, G = Cell::gates };
  T z[dc_many_rows * G * W] __attribute__((aligned(dc_vector_nbytes)));
  for (int64_t r0 = 0; r0 < step.size; r0 += dc_many_rows) {
    const int64_t rows = step.size - r0 < dc_many_rows ? step.size - r0 : (int64_t)dc_many_rows;
    for (int g = 0; g < G; ++g)
      dc_tiles<T, V, LDA, G * W>(rows, now + r0 * LDA, panel + (int64_t)g * H * W, H, z + g * W);
    for (int64_t r = r0; r < r0 + rows; ++r) {
      T prior[W];
      if (Cell::has_cells && r >= before.size) {
#pragma omp simd
        for (int j = 0; j < n; ++j) prior[j] = last0(r, j0 + j);
      } else {
        const T* const from = Cell::has_cells ? cells + (before.row + r) * H : now + r * LDA;
#pragma omp simd
        for (int j = 0; j < n; ++j) prior[j] = from[j0 + j];
      }
      const T* const sums = z + (r - r0) * G * W;
      Cell::template forward<H, W>(n, j0, step.row + r, sums, prior, x, b, h, cells, saved, next + r * LDA);
    }
  }
}

// x, b, h0 and last0 (c0 or h0), w: as `recurrent`'s operands. h, cells, saved: the parts of its result.
template <class Cell, int H, int LDA, class X, class M, class B, class F, class T>
static void dc_recurrent(const dc_sequence& sequence, X x, M w, B b, F h0, F last0, T* h, T* cells, T* saved,
                         T* scratch) {
  enum { lanes = dc_vector_nbytes / sizeof(T), W = 2 * lanes, G = Cell::gates, blocks = (H + W - 1) / W };
  enum { whole = (H + lanes - 1) / lanes * lanes };
  T* const packed = scratch;
  T* const states = packed + (int64_t)G * H * whole;
  const int64_t half = (sequence.batch + dc_many_rows) * LDA;
  dc_step* const steps = (dc_step*)dc_aligned(states + 2 * half) + 1;
  dc_fill_steps(sequence, sequence.reverse, steps);
  __builtin_memset(states, 0, 2 * half * sizeof(T));
  dc_parallel(blocks, 1, [&](int64_t from, int64_t to) {
    for (int block = (int)from; block < to; ++block) {
      const int64_t j0 = (int64_t)block * W, width = H - j0 > lanes ? W : (int)lanes;
      for (int64_t g = 0; g < G; ++g)
        for (int64_t p = 0; p < H; ++p) {
          T* const to = packed + G * H * j0 + (g * H + p) * width;
          for (int64_t j = 0; j < width; ++j) to[j] = j0 + j < H ? w(g * H + j0 + j, p) : 0;
        }
    }
  });
  for (int64_t k = 0; k < sequence.steps; ++k) {
    const dc_step step = steps[k], before = steps[k - 1];
    T* const now = states + k % 2 * half;
    T* const next = states + (k + 1) % 2 * half;
    for (int64_t r = before.size; r < step.size; ++r)
      for (int64_t j = 0; j < H; ++j) now[r * LDA + j] = h0(r, j);
    dc_parallel(blocks, 1, [&](int64_t from, int64_t to) {
      for (int block = (int)from; block < to; ++block) {
        const int64_t j0 = (int64_t)block * W;
        const T* const panel = packed + G * H * j0;
        if (H % W == 0 || j0 + W <= H)
          dc_forward_block<Cell, H, LDA, 2>(W, j0, step, before, panel, now, next, x, b, last0, h, cells, saved);
        else if (H % W > lanes)
          dc_forward_block<Cell, H, LDA, 2>(H % W, j0, step, before, panel, now, next, x, b, last0, h, cells, saved);
        else
          dc_forward_block<Cell, H, LDA, 1>(H % W, j0, step, before, panel, now, next, x, b, last0, h, cells, saved);
      }
    });
  }
}

template <class Cell, int H, int LDA, int V, class G0, class G1, class G2, class HH, class CC, class SS, class F,
          class T>
DC_INLINE void dc_backward_block(int n, int64_t j0, const dc_step* at, int64_t depth, const T* panel, const T* now,
                                 T* next, G0 g, G1 gc, G2 gs, HH h, CC cells, SS saved, F first, T* carry, T* dx, T* dq,
                                 T* dh0, T* dc0) {
  enum { lanes = dc_vector_nbytes / sizeof(T), W = V * lanes };
  const dc_step done = at[-1], step = at[0], before = at[1];  // visited already; now; the one before it in time
  T back[dc_many_rows * W] __attribute__((aligned(dc_vector_nbytes)));
  const int64_t reached = step.size > done.size ? step.size : done.size;
  for (int64_t r0 = 0; r0 < reached; r0 += dc_many_rows) {
    const int64_t rows = reached - r0 < dc_many_rows ? reached - r0 : (int64_t)dc_many_rows;
    dc_tiles<T, V, LDA, W>(rows, now + r0 * LDA, panel, depth, back);
    for (int64_t r = r0; r < r0 + rows; ++r) {
      const T* const sums = back + (r - r0) * W;
      if (r >= step.size) {  // the sequence began at the step visited before
#pragma omp simd
        for (int j = 0; j < n; ++j) {
          const T kept = Cell::has_carry ? carry[r * H + j0 + j] : (T)0;
          dh0[r * H + j0 + j] = Cell::has_carry && !Cell::has_cells ? sums[j] + kept : sums[j];
          if (Cell::has_cells) dc0[r * H + j0 + j] = kept;
        }
        continue;
      }
      T prior[W];
      if (Cell::has_carry && r < before.size) {
#pragma omp simd
        for (int j = 0; j < n; ++j)
          prior[j] = Cell::has_cells ? cells(before.row + r, j0 + j) : h(before.row + r, j0 + j);
      } else if (Cell::has_carry) {
#pragma omp simd
        for (int j = 0; j < n; ++j) prior[j] = first(r, j0 + j);
      }
      Cell::template backward<H>(n, j0, step.row + r, sums, prior, g, gc, gs, h, cells, saved, carry + r * H, dx, dq,
                                 next + r * LDA);
    }
  }
}

// g, gc, gs: the cotangents of h, cells and saved. dx, dq, dh0, dc0: the parts of `recurrent_backward`'s result.
template <class Cell, int H, int LDA, class G0, class G1, class G2, class HH, class CC, class SS, class M, class F,
          class T>
static void dc_recurrent_backward(const dc_sequence& sequence, G0 g, G1 gc, G2 gs, HH h, CC cells, SS saved, M w,
                                  F first, T* dx, T* dq, T* dh0, T* dc0, T* scratch) {
  enum { lanes = dc_vector_nbytes / sizeof(T), W = 2 * lanes, D = Cell::gates * H, blocks = (H + W - 1) / W };
  enum { whole = (H + lanes - 1) / lanes * lanes };
  T* const packed = scratch;
  T* const gates = packed + (int64_t)D * whole;
  const int64_t half = (sequence.batch + dc_many_rows) * LDA;
  T* const carry = gates + 2 * half;
  dc_step* const steps = (dc_step*)dc_aligned(carry + sequence.batch * H) + 1;
  dc_fill_steps(sequence, !sequence.reverse, steps);
  __builtin_memset(gates, 0, (2 * half + sequence.batch * H) * sizeof(T));
  dc_parallel(blocks, 1, [&](int64_t from, int64_t to) {
    for (int block = (int)from; block < to; ++block) {
      const int64_t j0 = (int64_t)block * W, width = H - j0 > lanes ? W : (int)lanes;
      for (int64_t p = 0; p < D; ++p) {
        T* const to = packed + D * j0 + p * width;
        for (int64_t j = 0; j < width; ++j) to[j] = j0 + j < H ? w(p, j0 + j) : 0;
      }
    }
  });
  for (int64_t k = 0; k <= sequence.steps; ++k) {
    const T* const now = gates + k % 2 * half;
    T* const next = gates + (k + 1) % 2 * half;
    const dc_step* const at = steps + k;
    const int64_t depth = k ? (int)D : 0;  // nothing comes back to the step that is visited first
    dc_parallel(blocks, 1, [&](int64_t from, int64_t to) {
      for (int block = (int)from; block < to; ++block) {
        const int64_t j0 = (int64_t)block * W;
        const T* const panel = packed + D * j0;
        if (H % W == 0 || j0 + W <= H)
          dc_backward_block<Cell, H, LDA, 2>(W, j0, at, depth, panel, now, next, g, gc, gs, h, cells, saved, first,
                                             carry, dx, dq, dh0, dc0);
        else if (H % W > lanes)
          dc_backward_block<Cell, H, LDA, 2>(H % W, j0, at, depth, panel, now, next, g, gc, gs, h, cells, saved, first,
                                             carry, dx, dq, dh0, dc0);
        else
          dc_backward_block<Cell, H, LDA, 1>(H % W, j0, at, depth, panel, now, next, g, gc, gs, h, cells, saved, first,
                                             carry, dx, dq, dh0, dc0);
      }
    });
  }
}

""".replace("DC_INLINE_MEMBER static", "static inline __attribute__((always_inline))").replace(
    "DC_INLINE_MEMBER", "inline __attribute__((always_inline))"
)

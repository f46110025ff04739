// Kernels of eager composites on a CUDA device: losses, dropout, counters, norms of many arrays; and their gradients.
//
// In: dense arrays; numbers; before this text those of numbers.cu: T, what an element is stored as, and C, what is
// computed in; and of rows.cu. Out: the arrays that are written; null where one is not wanted.
// Method: as eager/kernels.h, the CPU's.
// What is meant is tested on the host, block by block (tests/fake_cupy/raw.py); nothing here but plain CUDA C.

__device__ inline float exp_of(float x) { return expf(x); }
__device__ inline double exp_of(double x) { return exp(x); }

// ---- dropout: what is kept is drawn as ops/random/op.py has it, element number by element number

__device__ inline unsigned drawn(u64 element, u64 seed, u64 stream) {
  unsigned c0 = (unsigned)element, c1 = (unsigned)(element >> 32), c2 = (unsigned)stream, c3 = (unsigned)(stream >> 32);
  unsigned k0 = (unsigned)seed, k1 = (unsigned)(seed >> 32);
  for (int turn = 0; turn < 10; ++turn) {
    const unsigned high0 = __umulhi(c0, 0xD2511F53u), low0 = c0 * 0xD2511F53u;
    const unsigned high1 = __umulhi(c2, 0xCD9E8D57u), low1 = c2 * 0xCD9E8D57u;
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c0;
}

KERNEL dropout(const T* x, T* out, u8* kept, i64 n, double factor, unsigned least, u64 seed, u64 stream, u64 first) {
  ALL(i, n) {
    const bool stays = drawn(first + (u64)i, seed, stream) >= least;
    kept[i] = stays;
    out[i] = as_stored(in(x[i]) * (stays ? (C)factor : (C)0));
  }
}

KERNEL dropout_backward(const T* g, const u8* kept, T* dx, i64 n, double factor) {
  ALL(i, n) dx[i] = as_stored(in(g[i]) * (kept[i] ? (C)factor : (C)0));
}

// 1 where what is drawn is below `limit`, else 0
KERNEL chance(T* out, i64 n, u64 limit, u64 seed, u64 stream, u64 first) {
  ALL(i, n) out[i] = as_stored(drawn(first + (u64)i, seed, stream) < limit ? (C)1 : (C)0);
}

// ---- counters: int64 plus a number, around which it wraps

KERNEL add_number(const i64* x, i64* out, i64 n, i64 number) {
  ALL(i, n) out[i] = (i64)((u64)x[i] + (u64)number);
}

// ---- cross entropy with class indices. A block a row of n classes.

// A target outside of the classes counts as one ignored here: check_index tells of it.
#define COUNTS(t) ((t) != ignored && (t) >= 0 && (t) < n)

// smoothing: how much of each target all classes share
KERNEL cross_entropy(const T* x, const i64* target, C* losses, C* logs, i64 n, i64 ignored, double smoothing) {
  __shared__ C room[MOST];
  const i64 r = blockIdx.x;
  x += r * n;
  C peak = -infinity(), total = 0;
  ALONG(i, n) peak = larger(peak, in(x[i]));
  peak = LARGEST(peak);
  ALONG(i, n) total += exp_of(in(x[i]) - peak);
  const C logarithm = log_of(SUM(total));
  C spread = 0;
  if (smoothing) {
    ALONG(i, n) spread += in(x[i]) - peak;
    spread = n * logarithm - SUM(spread);
  }
  if (threadIdx.x == 0) {
    logs[r] = peak, logs[gridDim.x + r] = logarithm;  // apart: their sum has no digits of it where the peak is large
    C loss = COUNTS(target[r]) ? logarithm - (in(x[target[r]]) - peak) : (C)0;
    if (COUNTS(target[r]) && smoothing) loss = loss * (C)(1 - smoothing) + spread * (C)(smoothing / n);
    losses[r] = loss;
  }
}

// One block. total: the sum, or the mean, of the losses; count: how many count.
KERNEL cross_entropy_total(const C* losses, const i64* target, T* total, C* count, i64 rows, i64 n, i64 ignored,
                           int is_mean) {
  __shared__ C room[MOST];
  C sum = 0, number = 0;
  ALONG(r, rows) {
    sum += losses[r];
    number += COUNTS(target[r]) ? 1 : 0;
  }
  sum = SUM(sum);
  number = SUM(number);
  if (threadIdx.x == 0) {
    *count = number;
    *total = as_stored(is_mean ? sum / number : sum);
  }
}

// g: of each row (each), or of the total, which `count` divides if it is there
KERNEL cross_entropy_backward(const T* x, const i64* target, const C* logs, const T* g, const C* count, T* dx, i64 n,
                              i64 ignored, int each, double smoothing) {
  const i64 r = blockIdx.x, chosen = target[r];
  const C factor = !COUNTS(chosen) ? (C)0 : in(g[each ? r : 0]) / (count ? *count : (C)1);
  x += r * n;
  dx += r * n;
  const C shared = (C)(smoothing / n), own = (C)(1 - smoothing);
  ALONG(i, n) {
    const C slope = exp_of(in(x[i]) - logs[r] - logs[gridDim.x + r]) - shared - (i == chosen ? own : (C)0);
    dx[i] = as_stored(COUNTS(chosen) ? slope * factor : (C)0);
  }
}

// ---- many arrays as one vector: its norm, and its product with a number

// Each block has CHUNK elements of one of `count` arrays, at most MANY: a launch's arguments may have 4 KiB.
#define CHUNK 32768
#define MANY 128
struct Many {
  u64 at[MANY];
  i64 sizes[MANY];
  unsigned firsts[MANY];  // the first block of each
};

struct Piece {
  T* at;
  i64 n;
};

__device__ inline Piece piece_of(const Many& many, int count) {
  int low = 0, high = count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (many.firsts[middle] <= blockIdx.x)
      low = middle;
    else
      high = middle - 1;
  }
  const i64 start = (i64)(blockIdx.x - many.firsts[low]) * CHUNK, left = many.sizes[low] - start;
  return {(T*)many.at[low] + start, left < CHUNK ? left : CHUNK};
}

KERNEL squares(Many many, C* parts, int count) {  // parts: the sum of each block's
  __shared__ C room[MOST];
  const Piece x = piece_of(many, count);
  C total = 0;
  ALONG(i, x.n) total += in(x.at[i]) * in(x.at[i]);
  total = SUM(total);
  if (threadIdx.x == 0) parts[blockIdx.x] = total;
}

KERNEL scale(Many many, const C* factor, int count) {  // in place
  const Piece x = piece_of(many, count);
  const C by = *factor;
  ALONG(i, x.n) x.at[i] = as_stored(in(x.at[i]) * by);
}

KERNEL root_of_sum(const C* parts, C* root, i64 n) {  // one block
  __shared__ C room[MOST];
  C total = 0;
  ALONG(i, n) total += parts[i];
  total = SUM(total);
  if (threadIdx.x == 0) *root = root_of(total);
}

// ---- indices: right where they lie in [0, size) or are `ignored`

// The least of the threads' places that are not negative; -1 if all are. For thread 0.
__device__ inline i64 first_over_block(i64 place, i64* room) {
  room[threadIdx.x] = place;
  __syncthreads();
  if (threadIdx.x == 0)
    for (unsigned t = 1; t < blockDim.x; ++t)
      if (room[t] >= 0 && (place < 0 || room[t] < place)) place = room[t];
  return place;
}

// places: of each block, where its first wrong index is; -1: nowhere.
KERNEL find_wrong(const i64* index, i64 n, i64 size, i64 ignored, i64* places) {
  __shared__ i64 room[MOST];
  i64 place = -1;
  ALL(i, n) if (place < 0 && index[i] != ignored && (index[i] < 0 || index[i] >= size)) place = i;
  place = first_over_block(place, room);
  if (threadIdx.x == 0) places[blockIdx.x] = place;
}

// One block. word: 1 where all are right, else 2, with the first that is not behind.
KERNEL tell_wrong(const i64* index, const i64* places, i64 parts, i64* word) {
  __shared__ i64 room[MOST];
  i64 place = -1;
  ALONG(i, parts) if (places[i] >= 0 && (place < 0 || places[i] < place)) place = places[i];
  place = first_over_block(place, room);
  if (threadIdx.x == 0) {
    if (place >= 0) word[1] = index[place];
    __threadfence_system();
    word[0] = place < 0 ? 1 : 2;
  }
}

// Both at once, by one block: for a few indices.
KERNEL check_index(const i64* index, i64 n, i64 size, i64 ignored, i64* word) {
  __shared__ i64 room[MOST];
  i64 place = -1;
  ALONG(i, n) if (place < 0 && index[i] != ignored && (index[i] < 0 || index[i] >= size)) place = i;
  place = first_over_block(place, room);
  if (threadIdx.x == 0) {
    if (place >= 0) word[1] = index[place];
    __threadfence_system();
    word[0] = place < 0 ? 1 : 2;
  }
}

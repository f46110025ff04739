// Kernels of eager composites on a CUDA device: channels normalised, losses, dropout; and their gradients.
//
// In: dense arrays; numbers; before this text those of device_numbers.cu: T, what an element is stored as, and C, what is
// computed in; and of device_rows.cu. Out: the arrays that are written; null where one is not wanted.
// Method: as kernels.h, the CPU's.
// What is meant is tested on the host, block by block (tests/fake_cupy/raw.py); nothing here but plain CUDA C.

__device__ inline float exp_of(float x) { return expf(x); }
__device__ inline double exp_of(double x) { return exp(x); }
__device__ inline float log_of(float x) { return logf(x); }
__device__ inline double log_of(double x) { return log(x); }
__device__ inline float root_of(float x) { return sqrtf(x); }
__device__ inline double root_of(double x) { return sqrt(x); }

__device__ inline C infinity() { return -log_of((C)0); }

// ---- batch norm: x[batch, channels, length]. A block a channel, then all elements.

#define PLACE(i) (((i64)((i) / length) * channels + c) * length + (i) % length)

KERNEL channel_statistics(const T* x, C* means, C* scales, int batch, int channels, int length, double eps) {
  __shared__ C room[MOST];
  const int c = blockIdx.x;
  const unsigned n = (unsigned)batch * length;
  C total = 0, squares = 0;
  for (unsigned i = threadIdx.x; i < n; i += blockDim.x) total += in(x[PLACE(i)]);
  const C mean = SUM(total) / (C)n;
  for (unsigned i = threadIdx.x; i < n; i += blockDim.x) {
    const C d = in(x[PLACE(i)]) - mean;
    squares += d * d;
  }
  const C variance = SUM(squares) / (C)n;
  if (threadIdx.x == 0) {
    means[c] = mean;
    scales[c] = 1 / root_of(variance + (C)eps);
  }
}

// The same of channels with many elements: `parts` blocks for each, of `chunk` elements. What each adds up, [channels,
// parts]; then each one's squares of the distance to the mean; then, a thread a channel, the results.

#define PART(i) for (unsigned i = blockIdx.y * chunk + threadIdx.x; i < last; i += blockDim.x)
#define LAST (blockIdx.y * chunk + chunk < n ? blockIdx.y * chunk + chunk : n)

__device__ inline C mean_of(const C* totals, int c, int parts, C n) {
  C total = 0;
  for (int p = 0; p < parts; ++p) total += totals[(i64)c * parts + p];
  return total / n;
}

KERNEL channel_totals(const T* x, C* totals, int batch, int channels, int length, unsigned chunk) {
  __shared__ C room[MOST];
  const int c = blockIdx.x;
  const unsigned n = (unsigned)batch * length, last = LAST;
  C total = 0;
  PART(i) total += in(x[PLACE(i)]);
  total = SUM(total);
  if (threadIdx.x == 0) totals[(i64)c * gridDim.y + blockIdx.y] = total;
}

KERNEL channel_squares(const T* x, const C* totals, C* squares, int batch, int channels, int length, unsigned chunk) {
  __shared__ C room[MOST];
  const int c = blockIdx.x;
  const unsigned n = (unsigned)batch * length, last = LAST;
  const C mean = mean_of(totals, c, gridDim.y, (C)n);
  C total = 0;
  PART(i) {
    const C d = in(x[PLACE(i)]) - mean;
    total += d * d;
  }
  total = SUM(total);
  if (threadIdx.x == 0) squares[(i64)c * gridDim.y + blockIdx.y] = total;
}

KERNEL channel_finish(const C* totals, const C* squares, C* means, C* scales, i64 channels, int parts, double count,
                      double eps) {
  ALL(c, channels) {
    means[c] = mean_of(totals, c, parts, (C)count);
    scales[c] = 1 / root_of(mean_of(squares, c, parts, (C)count) + (C)eps);
  }
}

KERNEL channel_move(const C* totals, const C* squares, const C* mean, const C* variance, C* new_mean, C* new_variance,
                    i64 channels, int parts, double count, double share) {
  ALL(c, channels) {
    new_mean[c] = mean[c] * (C)(1 - share) + mean_of(totals, c, parts, (C)count) * (C)share;
    new_variance[c] = variance[c] * (C)(1 - share) + mean_of(squares, c, parts, (C)(count - 1)) * (C)share;
  }
}

// What running statistics become: `share` of the way to the mean of each channel, and to its unbiased variance.
KERNEL channel_moved(const T* x, const C* mean, const C* variance, C* new_mean, C* new_variance, int batch,
                     int channels, int length, double share) {
  __shared__ C room[MOST];
  const int c = blockIdx.x;
  const unsigned n = (unsigned)batch * length;
  C total = 0, squares = 0;
  for (unsigned i = threadIdx.x; i < n; i += blockDim.x) total += in(x[PLACE(i)]);
  const C middle = SUM(total) / (C)n;
  for (unsigned i = threadIdx.x; i < n; i += blockDim.x) {
    const C d = in(x[PLACE(i)]) - middle;
    squares += d * d;
  }
  const C spread = SUM(squares) / (C)(n > 1 ? n - 1 : 1);
  if (threadIdx.x == 0) {
    new_mean[c] = mean[c] * (C)(1 - share) + middle * (C)share;
    new_variance[c] = variance[c] * (C)(1 - share) + spread * (C)share;
  }
}

KERNEL channel_norm(const T* x, const C* means, const C* scales, const T* w, const T* b, T* out, i64 n, int channels,
                    int length) {
  ALL(i, n) {
    const int c = i / length % channels;
    const C y = (in(x[i]) - means[c]) * scales[c] * (w ? in(w[c]) : (C)1);
    out[i] = as_stored(b ? y + in(b[c]) : y);
  }
}

// along, level: [channels, parts]
KERNEL channel_sums(const T* g, const T* x, const C* means, const C* scales, C* along, C* level, int batch,
                    int channels, int length, unsigned chunk) {
  __shared__ C room[MOST];
  const int c = blockIdx.x;
  const unsigned n = (unsigned)batch * length, last = LAST;
  const C mean = means[c], scale = scales[c];
  C total = 0, products = 0;
  PART(i) {
    const i64 at = PLACE(i);
    total += in(g[at]);
    products += in(g[at]) * ((in(x[at]) - mean) * scale);
  }
  const C sum = SUM(total), product = SUM(products);
  if (threadIdx.x == 0) {
    along[(i64)c * gridDim.y + blockIdx.y] = product;
    level[(i64)c * gridDim.y + blockIdx.y] = sum;
  }
}

// count: elements of a channel; 0 where the statistics are not x's.
KERNEL channel_backward(const T* g, const T* x, const C* means, const C* scales, const T* w, const C* along,
                        const C* level, T* dx, i64 n, int channels, int length, double count) {
  ALL(i, n) {
    const int c = i / length % channels;
    C inner = in(g[i]);
    if (count) inner = inner - level[c] / (C)count - (in(x[i]) - means[c]) * scales[c] * (along[c] / (C)count);
    dx[i] = as_stored(inner * scales[c] * (w ? in(w[c]) : (C)1));
  }
}

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

// ---- cross entropy with class indices. A block a row of n classes.

// A target outside of the classes counts as one ignored here: check_index tells of it.
#define COUNTS(t) ((t) != ignored && (t) >= 0 && (t) < n)

KERNEL cross_entropy(const T* x, const i64* target, C* losses, C* logs, i64 n, i64 ignored) {
  __shared__ C room[MOST];
  const i64 r = blockIdx.x;
  x += r * n;
  C peak = -infinity(), total = 0;
  ALONG(i, n) peak = larger(peak, in(x[i]));
  peak = LARGEST(peak);
  ALONG(i, n) total += exp_of(in(x[i]) - peak);
  const C logarithm = log_of(SUM(total));
  if (threadIdx.x == 0) {
    logs[r] = peak + logarithm;
    losses[r] = COUNTS(target[r]) ? logarithm - (in(x[target[r]]) - peak) : (C)0;
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
                              i64 ignored, int each) {
  const i64 r = blockIdx.x, chosen = target[r];
  const C factor = !COUNTS(chosen) ? (C)0 : in(g[each ? r : 0]) / (count ? *count : (C)1);
  x += r * n;
  dx += r * n;
  ALONG(i, n) dx[i] = as_stored(COUNTS(chosen) ? (exp_of(in(x[i]) - logs[r]) - (i == chosen ? 1 : 0)) * factor : (C)0);
}

// ---- the norm of many arrays as one vector

KERNEL squares(const T* x, C* parts, i64 n) {  // parts: the sum of each block's
  __shared__ C room[MOST];
  C total = 0;
  ALL(i, n) total += in(x[i]) * in(x[i]);
  total = SUM(total);
  if (threadIdx.x == 0) parts[blockIdx.x] = total;
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

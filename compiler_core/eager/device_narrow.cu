// Arithmetic of 16-bit floats in eager code on a CUDA device: operands read once, computed in f32, rounded once.
//
// In: dense arrays; before this text that of device_numbers.cu. Out: the arrays that are written.
// Elements are moved eight at a time where `wide` says that all lie so (on 16 bytes, in multiples of eight).

union Eight { uint4 whole; T each[8]; };
union Floats { uint4 whole[2]; float each[8]; };

#define EACH(k) for (int k = 0; k < 8; ++k)

__device__ inline T joined(int op, T a, float y) {
  const C x = in(a);
  return as_stored(op == 0 ? x + y : op == 1 ? x - y : op == 2 ? x * y : x / y);
}

// out = a op b, of n elements. b has `period`, and begins anew after these; where it is null it is `number`, repeated.
// op: 0 +, 1 -, 2 *, 3 /.
KERNEL join(const T* a, const T* b, T* out, i64 n, i64 period, float number, int op, int wide) {
  if (wide) {
    ALL(i, n / 8) {
      Eight x, y;
      x.whole = ((const uint4*)a)[i];
      if (b) y.whole = ((const uint4*)b)[period == n ? i : i % (period / 8)];
#pragma unroll
      EACH(k) x.each[k] = joined(op, x.each[k], b ? in(y.each[k]) : number);
      ((uint4*)out)[i] = x.whole;
    }
  } else {
    ALL(i, n) out[i] = joined(op, a[i], b ? in(b[period == n ? i : period == 1 ? 0 : i % period]) : number);
  }
}

KERNEL widen(const T* x, float* out, i64 n, int wide) {
  if (wide) {
    ALL(i, n / 8) {
      Eight narrow;
      Floats made;
      narrow.whole = ((const uint4*)x)[i];
#pragma unroll
      EACH(k) made.each[k] = in(narrow.each[k]);
      ((uint4*)out)[2 * i] = made.whole[0];
      ((uint4*)out)[2 * i + 1] = made.whole[1];
    }
  } else {
    ALL(i, n) out[i] = in(x[i]);
  }
}

KERNEL add_wide(const float* x, const T* y, float* out, i64 n, int wide) {
  if (wide) {
    ALL(i, n / 8) {
      Floats sum;
      Eight narrow;
      sum.whole[0] = ((const uint4*)x)[2 * i];
      sum.whole[1] = ((const uint4*)x)[2 * i + 1];
      narrow.whole = ((const uint4*)y)[i];
#pragma unroll
      EACH(k) sum.each[k] += in(narrow.each[k]);
      ((uint4*)out)[2 * i] = sum.whole[0];
      ((uint4*)out)[2 * i + 1] = sum.whole[1];
    }
  } else {
    ALL(i, n) out[i] = x[i] + in(y[i]);
  }
}

KERNEL narrow(const float* x, T* out, i64 n, int wide) {
  if (wide) {
    ALL(i, n / 8) {
      Floats given;
      Eight made;
      given.whole[0] = ((const uint4*)x)[2 * i];
      given.whole[1] = ((const uint4*)x)[2 * i + 1];
#pragma unroll
      EACH(k) made.each[k] = as_stored(given.each[k]);
      ((uint4*)out)[i] = made.whole;
    }
  } else {
    ALL(i, n) out[i] = as_stored(x[i]);
  }
}

"""One small graph for each rewriting rule, and the passes that shall act on it; goldens hold what they become."""

from __future__ import annotations

from compiler_core.graph.passes import Canonicalise, ChannelsLast, Cse, Dce, Fold, Pass, Rename

CANONICAL: tuple[Pass, ...] = (Fold(), Canonicalise(), Cse(), Dce())
GRADIENT: tuple[Pass, ...] = (
    Fold(),
    Canonicalise(after_autograd=True),
    Cse(),
    Canonicalise(after_autograd=True),
    Dce(),
)

# every convolution is the library's
LAST: tuple[Pass, ...] = (ChannelsLast(lambda routine, attrs, arrays: True), Canonicalise())
_SAME = "stride=(1, 1) low=(1, 1) high=(1, 1) dilation=(1, 1) groups=1"

# name -> (passes, text of the graph)
CASES: dict[str, tuple[tuple[Pass, ...], str]] = {
    "dce": (
        (Dce(),),
        """
graph g(%x: f32[2, 3] input 'x') {
  %a: f32[2, 3] = neg(%x)
  %b: f32[2, 3] = exp(%x)
  %c: f32[2, 3] = exp(%b)
  return %a
}
""",
    ),
    "dce_keeps_placeholders": (
        (Dce(),),
        """
graph g(%x: f32[2, 3] input 'x', %y: f32[] input 'y') {
  %a: f32[2, 3] = neg(%x)
  return %x
}
""",
    ),
    "cse_commutes": (
        (Cse(),),
        """
graph g(%x: f32[2, 3] input 'x', %y: f32[2, 3] input 'y') {
  %a: f32[2, 3] = mul(%x, %y)
  %b: f32[2, 3] = mul(%y, %x)
  %c: f32[2, 3] = sub(%x, %y)
  %d: f32[2, 3] = sub(%y, %x)
  %e: f32[2, 3] = add(%a, %b)
  return %e, %c, %d
}
""",
    ),
    "cse_tells_attributes_apart": (
        (Cse(), Dce()),
        """
graph g(%k: u64[3] rng 'k') {
  %a: u32[4] = philox(%k) shape=(4,) stream=0
  %b: u32[4] = philox(%k) shape=(4,) stream=1
  %c: u32[4] = philox(%k) shape=(4,) stream=0
  return %a, %b, %c
}
""",
    ),
    "cse_merges_constants": (
        (Cse(),),
        """
graph g(%x: f32[2] input 'x') {
  %c: f32[2] = constant [1.0, 2.0]
  %d: f32[2] = constant [1.0, 2.0]
  %a: f32[2] = add(%x, %c)
  %b: f32[2] = add(%x, %d)
  return %a, %b
}
""",
    ),
    "fold_fulls": (
        (Fold(), Dce()),
        """
graph g(%x: f32[2, 3] input 'x') {
  %two: f32[] = constant 2.0
  %r: f32[1, 1] = reshape(%two) shape=(1, 1)
  %e: f32[2, 3] = expand(%r) shape=(2, 3)
  %h: f32[2, 3] = full() dtype=f32 shape=(2, 3) value=0.5
  %m: f32[2, 3] = mul(%e, %h)
  %y: f32[2, 3] = sub(%x, %m)
  return %y
}
""",
    ),
    "fold_small_constants": (
        (Fold(), Dce()),
        """
graph g(%x: f32[2] input 'x') {
  %c: f32[2] = constant [1.0, -0.0]
  %n: f32[2] = neg(%c)
  %y: f32[2] = add(%x, %n)
  return %y
}
""",
    ),
    "identities": (
        CANONICAL,
        """
graph g(%x: f32[2, 3] input 'x') {
  %one: f32[2, 3] = full() dtype=f32 shape=(2, 3) value=1.0
  %zero: f32[2, 3] = full() dtype=f32 shape=(2, 3) value=0.0
  %less: f32[2, 3] = full() dtype=f32 shape=(2, 3) value=-0.0
  %a: f32[2, 3] = mul(%one, %x)
  %b: f32[2, 3] = add(%a, %less)
  %c: f32[2, 3] = sub(%b, %zero)
  %d: f32[2, 3] = div(%c, %one)
  %e: f32[2, 3] = neg(%d)
  %f: f32[2, 3] = neg(%e)
  %g: f32[2, 3] = cast(%f) dtype=f32
  %h: f64[2, 3] = cast(%g) dtype=f64
  %i: f32[2, 3] = cast(%h) dtype=f32
  %j: f32[2, 3] = pow(%i, %one)
  %y: f32[2, 3] = exp(%j)
  return %y
}
""",
    ),
    "a_zero_that_takes_a_sign_away": (
        CANONICAL,
        """
graph g(%x: f32[2] input 'x', %i: i32[2] input 'i') {
  %zero: f32[2] = full() dtype=f32 shape=(2,) value=0.0
  %less: f32[2] = full() dtype=f32 shape=(2,) value=-0.0
  %a: f32[2] = add(%x, %zero)
  %b: f32[2] = sub(%x, %less)
  %none: i32[2] = full() dtype=i32 shape=(2,) value=0
  %c: i32[2] = add(%i, %none)
  return %a, %b, %c
}
""",
    ),
    "factors_that_join": (
        GRADIENT,
        """
graph g(%x: f32[2] input 'x', %h: f16[2] input 'h') {
  %eight: f32[2] = full() dtype=f32 shape=(2,) value=8.0
  %most: f32[2] = full() dtype=f32 shape=(2,) value=1e30
  %a: f32[2] = mul(%x, %most)
  %b: f32[2] = mul(%a, %eight)
  %tenth: f16[2] = full() dtype=f16 shape=(2,) value=0.1
  %half: f16[2] = full() dtype=f16 shape=(2,) value=0.5
  %c: f16[2] = mul(%h, %tenth)
  %d: f16[2] = mul(%c, %half)
  return %b, %d
}
""",
    ),
    "factors_that_a_dtype_keeps_apart": (
        GRADIENT,
        """
graph g(%x: f32[2] input 'x', %h: f16[2] input 'h', %r: f16[1] input 'r') {
  %three: f32[2] = full() dtype=f32 shape=(2,) value=3.0
  %half: f32[2] = full() dtype=f32 shape=(2,) value=0.5
  %a: f32[2] = mul(%x, %three)
  %b: f32[2] = mul(%a, %half)
  %thousand: f16[2] = full() dtype=f16 shape=(2,) value=1000.0
  %many: f16[2] = full() dtype=f16 shape=(2,) value=128.0
  %c: f16[2] = mul(%h, %thousand)
  %d: f16[2] = mul(%c, %many)
  %small: f16[2] = full() dtype=f16 shape=(2,) value=0.003
  %tiny: f16[2] = full() dtype=f16 shape=(2,) value=0.000244140625
  %e: f16[2] = mul(%h, %small)
  %f: f16[2] = mul(%e, %tiny)
  %copies: f16[2] = expand(%r) shape=(2,)
  %g: f16[2] = mul(%copies, %h)
  %two: f16[2] = full() dtype=f16 shape=(2,) value=2.0
  %i: f16[2] = mul(%g, %two)
  return %b, %d, %f, %i
}
""",
    ),
    "narrowing_casts_stay": (
        CANONICAL,
        """
graph g(%x: f32[2, 3] input 'x') {
  %a: bf16[2, 3] = cast(%x) dtype=bf16
  %b: f32[2, 3] = cast(%a) dtype=f32
  %c: i32[2, 3] = cast(%x) dtype=i32
  %d: f32[2, 3] = cast(%c) dtype=f32
  return %b, %d
}
""",
    ),
    "powers": (
        CANONICAL,
        """
graph g(%x: f32[2, 3] input 'x') {
  %three: f32[2, 3] = full() dtype=f32 shape=(2, 3) value=3.0
  %a: f32[2, 3] = pow(%x, %three)
  %h: bf16[2, 3] = cast(%x) dtype=bf16
  %third: bf16[2, 3] = full() dtype=bf16 shape=(2, 3) value=3.0
  %b: bf16[2, 3] = pow(%h, %third)
  return %a, %b
}
""",
    ),
    "division_by_a_power_of_two": (
        CANONICAL,
        """
graph g(%x: f32[2, 3] input 'x') {
  %four: f32[2, 3] = full() dtype=f32 shape=(2, 3) value=4.0
  %a: f32[2, 3] = div(%x, %four)
  %three: f32[2, 3] = full() dtype=f32 shape=(2, 3) value=3.0
  %b: f32[2, 3] = div(%x, %three)
  return %a, %b
}
""",
    ),
    "reshapes_and_permutes": (
        CANONICAL,
        """
graph g(%x: f32[2, 1, 3] input 'x') {
  %a: f32[6] = reshape(%x) shape=(6,)
  %b: f32[2, 1, 3] = reshape(%a) shape=(2, 1, 3)
  %c: f32[3, 2, 1] = permute(%b) dims=(2, 0, 1)
  %d: f32[2, 1, 3] = permute(%c) dims=(1, 2, 0)
  %e: f32[1, 2, 3] = permute(%d) dims=(1, 0, 2)
  %y: f32[1, 2, 3] = exp(%e)
  return %y
}
""",
    ),
    "expands": (
        GRADIENT,
        """
graph g(%x: f32[3] input 'x') {
  %a: f32[1, 3] = reshape(%x) shape=(1, 3)
  %b: f32[2, 3] = expand(%a) shape=(2, 3)
  %c: f32[4, 2, 3] = expand(%b) shape=(4, 2, 3)
  %y: f32[4, 2, 3] = exp(%c)
  return %y
}
""",
    ),
    "sums": (
        CANONICAL,
        """
graph g(%x: f32[2, 3, 4] input 'x', %b: f32[4] input 'b') {
  %a: f32[2, 4] = sum(%x) dims=(1,)
  %r: f32[2, 1, 4] = reshape(%a) shape=(2, 1, 4)
  %c: f32[1, 4] = sum(%r) dims=(0,)
  %d: f32[4] = sum(%c) dims=(0,)
  %e: f32[2, 3, 4] = expand(%b) shape=(2, 3, 4)
  %f: f32[4] = sum(%e) dims=(0, 1)
  %y: f32[4] = add(%d, %f)
  return %y
}
""",
    ),
    "slices_of_slices_and_cats": (
        GRADIENT,
        """
graph g(%x: f32[8] input 'x', %z: f32[4] input 'z') {
  %a: f32[4] = slice(%x) starts=(1,) steps=(2,) stops=(8,)
  %b: f32[2] = slice(%a) starts=(1,) steps=(2,) stops=(4,)
  %c: f32[12] = cat(%z, %x) dim=0
  %d: f32[3] = slice(%c) starts=(5,) steps=(1,) stops=(8,)
  %e: f32[4] = slice(%c) starts=(0,) steps=(1,) stops=(4,)
  return %b, %d, %e
}
""",
    ),
    "cat_of_the_parts_of_one_array": (
        GRADIENT,
        """
graph g(%x: f32[2, 5, 18] input 'x') {
  %r: f32[2, 5, 6, 3] = reshape(%x) shape=(2, 5, 6, 3)
  %a: f32[2, 5, 2, 3] = slice(%r) starts=(0, 0, 0, 0) steps=(1, 1, 1, 1) stops=(2, 5, 2, 3)
  %b: f32[2, 5, 2, 3] = slice(%r) starts=(0, 0, 2, 0) steps=(1, 1, 1, 1) stops=(2, 5, 4, 3)
  %c: f32[2, 5, 2, 3] = slice(%r) starts=(0, 0, 4, 0) steps=(1, 1, 1, 1) stops=(2, 5, 6, 3)
  %pa: f32[2, 2, 5, 3] = permute(%a) dims=(0, 2, 1, 3)
  %pb: f32[2, 2, 5, 3] = permute(%b) dims=(0, 2, 1, 3)
  %pc: f32[2, 2, 5, 3] = permute(%c) dims=(0, 2, 1, 3)
  %ra: f32[1, 2, 2, 5, 3] = reshape(%pa) shape=(1, 2, 2, 5, 3)
  %rb: f32[1, 2, 2, 5, 3] = reshape(%pb) shape=(1, 2, 2, 5, 3)
  %rc: f32[1, 2, 2, 5, 3] = reshape(%pc) shape=(1, 2, 2, 5, 3)
  %in_order: f32[3, 2, 2, 5, 3] = cat(%ra, %rb, %rc) dim=0
  %back: f32[2, 5, 3, 2, 3] = permute(%in_order) dims=(1, 3, 0, 2, 4)
  %same: f32[2, 5, 18] = reshape(%back) shape=(2, 5, 18)
  %other_order: f32[3, 2, 2, 5, 3] = cat(%rc, %rb, %ra) dim=0
  %some: f32[2, 2, 2, 5, 3] = cat(%ra, %rb) dim=0
  %twice: f32[3, 2, 2, 5, 3] = cat(%ra, %ra, %rb) dim=0
  %wide: f32[2, 2, 10, 3] = cat(%pa, %pb) dim=2
  return %same, %in_order, %other_order, %some, %twice, %wide
}
""",
    ),
    "gradient_of_a_split_is_a_cat": (
        CANONICAL,
        """
graph g(%a: f32[2, 1] input 'a', %b: f32[2, 3] input 'b', %c: f32[2, 2] input 'c') {
  %pa: f32[2, 6] = pad(%a) high=(0, 5) low=(0, 0) value=0.0
  %pb: f32[2, 6] = pad(%b) high=(0, 2) low=(0, 1) value=0.0
  %pc: f32[2, 6] = pad(%c) high=(0, 0) low=(0, 4) value=0.0
  %s: f32[2, 6] = add(%pc, %pb)
  %t: f32[2, 6] = add(%s, %pa)
  return %t
}
""",
    ),
    "slices_of_pads": (
        CANONICAL,
        """
graph g(%a: f32[3, 4] input 'a') {
  %p: f32[6, 9] = pad(%a) high=(2, 3) low=(1, 2) value=7.0
  %inside: f32[2, 3] = slice(%p) starts=(2, 3) steps=(1, 1) stops=(4, 6)
  %outside: f32[6, 2] = slice(%p) starts=(0, 0) steps=(1, 1) stops=(6, 2)
  %both: f32[3, 3] = slice(%p) starts=(1, 1) steps=(1, 1) stops=(4, 4)
  %strided: f32[2, 2] = slice(%p) starts=(1, 2) steps=(2, 2) stops=(4, 5)
  return %inside, %outside, %both, %strided
}
""",
    ),
    "weight_gradient_in_the_weights_layout": (
        CANONICAL,
        """
graph g(%x: f32[8, 3] input 'x', %g: f32[8, 4] input 'g') {
  %xt: f32[3, 8] = permute(%x) dims=(1, 0)
  %m: f32[3, 4] = matmul(%xt, %g)
  %w: f32[4, 3] = permute(%m) dims=(1, 0)
  return %w
}
""",
    ),
    "only_autograd_reads_detach": (
        GRADIENT,
        """
graph g(%x: f32[2, 3] input 'x') {
  %a: f32[2, 3] = detach(%x)
  %y: f32[2, 3] = exp(%a)
  return %y
}
""",
    ),
    "square_gradient": (
        GRADIENT,
        """
graph g(%r: f32[2, 1] input 'r', %x: f32[2, 3] input 'x') {
  %g: f32[2, 3] = expand(%r) shape=(2, 3)
  %a: f32[2, 3] = mul(%g, %x)
  %b: f32[2, 3] = mul(%g, %x)
  %y: f32[2, 3] = add(%a, %b)
  %n: f32[2, 3] = neg(%y)
  %s: f32[2] = sum(%n) dims=(1,)
  %h: f32[2] = full() dtype=f32 shape=(2,) value=0.25
  %t: f32[2] = mul(%s, %h)
  return %y, %t
}
""",
    ),
    "softmax_gradient": (
        GRADIENT,
        """
graph g(%e: f32[2, 3] input 'e', %g: f32[2, 3] input 'g') {
  %s: f32[2] = sum(%e) dims=(1,)
  %k: f32[2, 1] = reshape(%s) shape=(2, 1)
  %S: f32[2, 3] = expand(%k) shape=(2, 3)
  %p: f32[2, 3] = div(%e, %S)
  %q: f32[2, 3] = div(%g, %S)
  %m: f32[2, 3] = mul(%q, %p)
  %n: f32[2, 3] = neg(%m)
  %t: f32[2] = sum(%n) dims=(1,)
  %u: f32[2, 1] = reshape(%t) shape=(2, 1)
  %v: f32[2, 3] = expand(%u) shape=(2, 3)
  %w: f32[2, 3] = add(%q, %v)
  %y: f32[2, 3] = mul(%w, %e)
  return %p, %y
}
""",
    ),
    "embedding_gradients": (
        GRADIENT,
        """
graph g(%w: f32[5, 2] input 'w', %i: i64[3] input 'i', %r: f32[3, 2] input 'r', %x: f32[5, 2] input 'x') {
  %n: i64[3] = iota() dim=0 dtype=i64 shape=(3,)
  %t: f32[3, 2] = take(%w, %n)
  %z: f32[5, 2] = full() dtype=f32 shape=(5, 2) value=0.0
  %a: f32[5, 2] = index_add(%z, %n, %r)
  %b: f32[5, 2] = index_add(%z, %i, %r)
  %c: f32[5, 2] = add(%x, %b)
  return %t, %a, %c
}
""",
    ),
    "a_number_that_the_dtype_cannot_say": (
        CANONICAL,
        """
graph g(%x: f16[1] input 'x', %y: f16[1] input 'y') {
  %e: f16[70000] = expand(%x) shape=(70000,)
  %s: f16[] = sum(%e) dims=(0,)
  %f: f16[1000] = expand(%y) shape=(1000,)
  %t: f16[] = sum(%f) dims=(0,)
  %g: f16[1000, 1000] = expand(%f) shape=(1000, 1000)
  %u: f16[] = sum(%g) dims=(0, 1)
  %n: f16[0] = expand(%x) shape=(0,)
  %v: f16[] = sum(%n) dims=(0,)
  return %s, %t, %u, %v
}
""",
    ),
    "rename": (
        (Rename(),),
        """
graph g(%neg: f32[2] input 'x') {
  %q: f32[2] = neg(%neg)
  %neg_7: f32[2] = neg(%q)
  %c: f32[2] = constant [1.0, 2.0]
  return %neg_7, %c
}
""",
    ),
    "channels_last_stays_between_convolutions": (
        LAST,
        f"""
graph g(%x: f32[2, 3, 5, 4] input 'x', %w: f32[6, 3, 3, 3] parameter 'w', %v: f32[6, 6, 3, 3] parameter 'v',
        %b: f32[6] parameter 'b') {{
  %a: f32[2, 6, 5, 4] = convolution(%x, %w) {_SAME}
  %c: f32[6, 1, 1] = reshape(%b) shape=(6, 1, 1)
  %d: f32[2, 6, 5, 4] = expand(%c) shape=(2, 6, 5, 4)
  %e: f32[2, 6, 5, 4] = add(%a, %d)
  %f: f32[2, 6, 5, 4] = convolution(%e, %v) {_SAME}
  %h: f32[2, 6, 5, 4] = add(%f, %e)
  %i: f32[2, 6] = sum(%h) dims=(2, 3)
  %j: f32[6] = sum(%h) dims=(0, 2, 3)
  %k: f32[6, 5, 4] = sum(%h) dims=(0,)
  return %i, %j, %k
}}
""",
    ),
    "channels_last_gradients": (
        LAST,
        """
graph g(%x: f32[2, 3, 5] input 'x', %w: f32[4, 3, 3] parameter 'w', %g: f32[2, 4, 5] tangent 'g') {
  %a: f32[2, 3, 5] = neg(%x)
  %b: f32[2, 3, 5] = convolution_input(%g, %w) size=(5,) stride=(1,) low=(1,) high=(1,) dilation=(1,) groups=1
  %c: f32[4, 3, 3] = convolution_weight(%a, %g) kernel=(3,) stride=(1,) low=(1,) high=(1,) dilation=(1,) groups=1
  %d: f32[2, 3, 5] = mul(%b, %x)
  return %d, %c
}
""",
    ),
    "channels_last_moves_what_has_dims": (
        LAST,
        f"""
graph g(%x: f32[2, 3, 5, 4] input 'x', %w: f32[6, 3, 3, 3] parameter 'w', %y: f32[2, 2, 5, 4] input 'y') {{
  %a: f32[2, 6, 5, 4] = convolution(%x, %w) {_SAME}
  %b: f32[2, 8, 5, 4] = cat(%a, %y) dim=1
  %c: f32[2, 8, 7, 4] = pad(%b) low=(0, 0, 2, 0) high=(0, 0, 0, 0) value=0.0
  %d: f32[2, 8, 6, 3] = window_sum(%c) kernel=(2, 2) stride=(1, 1) dilation=(1, 1)
  %e: f32[2, 4, 6, 3] = slice(%d) starts=(0, 1, 0, 0) stops=(2, 8, 6, 3) steps=(1, 2, 1, 1)
  %f: f32[2, 6, 3, 4] = permute(%e) dims=(0, 2, 3, 1)
  %h: f32[2, 72] = reshape(%e) shape=(2, 72)
  %i: i64[2, 4, 3] = argmax(%e) dims=(2,)
  return %f, %h, %i
}}
""",
    ),
}

/* The fused Bessel convolution for one instruction set; compiled once for each.

   A tile of output pixels goes through all steps while it is in the cache:

   1. analyse: phi, the coefficients of every channel. A filter is even or odd in x and in y, so the four taps
      that mirror each other are added and subtracted first: a filter then costs a quarter of its taps.
   2. mix: for each angular order phi times the weights; the squares of these maps add up to the response.
   Backward:
   3. the maps times the slope of the response are their gradient;
   4. its product with phi is the gradient of the weights, its product with the weights that of phi;
   5. synthesise: the transpose of step 1.

   Every product goes through one small matrix kernel, `multiply`. Pixels are rows, (pixel, channel): a row of
   the image is one long vector, and any number of channels fills the registers.

   SO(2) multiplies complex numbers with three real products. With phi = c + i s and kappa = p + i q
     a = p c + q s = p (c + s) - (p - q) s        b = p s - q c = p (c + s) - (p + q) c
   and with the gradients A of a and B of b
     of p: A c + B s = A (c + s) - (A - B) s      of q: A s - B c = A (c + s) - (A + B) c
     of c: p A - q B = p (A + B) - (p + q) B      of s: q A + p B = p (A + B) - (p - q) A  */
#include <float.h>
#include <string.h>

#include "kernel.h"

#define LANES (BESSEL_VECTOR_BYTES / 4)
#define WIDE (2 * LANES) /* floats that are analysed together */
#define OVERRUN (4 * LANES)
#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(BESSEL_VECTOR_BYTES)));
typedef float unaligned __attribute__((vector_size(BESSEL_VECTOR_BYTES), aligned(4), may_alias));

INLINE vec load(const float *p) { return *(const unaligned *)p; }
INLINE void store(float *p, vec v) { *(unaligned *)p = v; }
INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* C = A B, or C += A B. The inner dimension is (outer, inner): A[row, j, k] stands at
   a[row * a_row + j * a_outer + k * a_inner], row j * inner + k of B at b + (j * inner + k) * b_row. */
typedef struct {
  const float *a;
  int64_t a_row, a_outer, a_inner;
  const float *b;
  int64_t b_row;
  float *c;
  int64_t c_row;
  int64_t outer, inner;
  int add;
} product;

INLINE void block(const int rows, const int vectors, const product *m) {
  vec sum[12][4];
#pragma GCC unroll 12
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) sum[r][v] = m->add ? load(m->c + r * m->c_row + v * LANES) : (vec){0};
  const float *b = m->b;
  const int64_t a_row = m->a_row, a_inner = m->a_inner, b_row = m->b_row;
  for (int64_t j = 0; j < m->outer; j++) {
    const float *a = m->a + j * m->a_outer;
    for (int64_t k = m->inner; k > 0; k--, a += a_inner, b += b_row) {
      vec x[4];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) x[v] = load(b + v * LANES);
#pragma GCC unroll 12
      for (int r = 0; r < rows; r++) {
        const float factor = a[r * a_row];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) sum[r][v] += factor * x[v];
      }
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) store(m->c + r * m->c_row + v * LANES, sum[r][v]);
}

/* Blocks of 1 to 12 rows and 1 to 4 vectors, as far as the registers reach. */
#define BLOCK(rows, vectors) \
  static void block_##rows##_##vectors(const product *m) { block(rows, vectors, m); }
#define BLOCKS_3(v) BLOCK(1, v) BLOCK(2, v) BLOCK(3, v)
#define BLOCKS_6(v) BLOCKS_3(v) BLOCK(4, v) BLOCK(5, v) BLOCK(6, v)
#define BLOCKS_8(v) BLOCKS_6(v) BLOCK(7, v) BLOCK(8, v)
#define BLOCKS_12(v) BLOCKS_8(v) BLOCK(9, v) BLOCK(10, v) BLOCK(11, v) BLOCK(12, v)
#define NAMES_3(v) block_1_##v, block_2_##v, block_3_##v
#define NAMES_6(v) NAMES_3(v), block_4_##v, block_5_##v, block_6_##v
#define NAMES_8(v) NAMES_6(v), block_7_##v, block_8_##v
#define NAMES_12(v) NAMES_8(v), block_9_##v, block_10_##v, block_11_##v, block_12_##v
typedef void block_function(const product *);
#if BESSEL_REGISTERS == 32
/* clang-format off */
BLOCKS_12(1) BLOCKS_12(2) BLOCKS_8(3) BLOCKS_6(4)
static block_function *const blocks[4][12] = {{NAMES_12(1)}, {NAMES_12(2)}, {NAMES_8(3)}, {NAMES_6(4)}};
static const int most_rows[4] = {12, 12, 8, 6};
#else
BLOCKS_6(1) BLOCKS_6(2) BLOCKS_3(3) BLOCKS_3(4)
static block_function *const blocks[4][6] = {{NAMES_6(1)}, {NAMES_6(2)}, {NAMES_3(3)}, {NAMES_3(4)}};
static const int most_rows[4] = {6, 6, 3, 3};
#endif
/* clang-format on */
enum { MOST_VECTORS = BESSEL_REGISTERS == 32 ? 4 : 2 };

/* A product of any size, in blocks of nearly equal size. */
static void multiply(product m, int64_t rows, int64_t vectors) {
  const int64_t strips = (vectors + MOST_VECTORS - 1) / MOST_VECTORS;
  const float *a = m.a, *b = m.b;
  float *c = m.c;
  for (int64_t strip = 0; strip < strips; strip++) {
    const int64_t from = vectors * strip / strips, width = vectors * (strip + 1) / strips - from;
    const int64_t count = (rows + most_rows[width - 1] - 1) / most_rows[width - 1];
    m.b = b + from * LANES;
    for (int64_t i = 0; i < count; i++) {
      const int64_t first = rows * i / count, height = rows * (i + 1) / count - first;
      m.a = a + first * m.a_row;
      m.c = c + first * m.c_row + from * LANES;
      blocks[width - 1][height - 1](&m);
    }
  }
}

/* What a part works on. A tile has `pixels` output pixels. */
typedef struct {
  const bessel_call *call;
  const bessel_layer *layer;
  int64_t image, group, y, x, rows, columns, pixels; /* the tile */
  float *ring, *ring_gradient; /* input rows, (phase, pixel, channel), and their gradients */
  float *phi;                  /* (planes, pixel, channel); in the end its gradient */
  float *maps;                 /* (maps, pixel, out_pitch); forward: those of one order */
  float *power, *linear;       /* (pixel, out_pitch): sum of squares, then slope; map of order 0 */
  float *slopes;               /* gradients of the maps of an order: A, B, A - B, A + B */
  float *pulled;               /* gradient of phi of an order: three products */
  float *shifted; /* (2, k, shifted_length): what a row of taps adds to the input, even and odd in y */
  float *tail;    /* (filters, WIDE): the end of a row of phi, filled up with zeros */
  int64_t margin, shifted_length, shifted_columns;
  bessel_remains remains;
} part;

/* Lay out a part from `memory` on, or measure it (NULL); the size. */
static size_t lay_out(part *s, const bessel_call *call, char *memory) {
  const bessel_layer *layer = call->layer;
  const int64_t pixels = call->tile_rows * call->tile_columns, k = layer->kernel_size;
  const int64_t channels = layer->in_channels, maps = pixels * call->out_pitch;
  const int64_t back = call->backward != 0, pull = back && call->to_input;
  int64_t widest = 0;
  for (int64_t v = 0; v < layer->num_orders; v++)
    widest = larger(widest, bessel_round_up(call->orders[v].count * channels, LANES));
  *s = (part){.call = call, .layer = layer};
  s->margin = (k - 1) * layer->dilation[1] / layer->stride[1] * channels;
  s->shifted_length = bessel_round_up(2 * s->margin + call->tile_columns * channels + 2 * OVERRUN, LANES);
  size_t used = 0;
  const struct {
    float **field;
    int64_t floats;
  } fields[] = {
      {&s->ring, call->ring * call->row_pitch},
      {&s->ring_gradient, pull * call->ring * call->row_pitch},
      {&s->phi, call->num_planes * call->plane_pitch},
      {&s->maps, maps * (back ? call->num_maps : 3)},
      {&s->power, maps},
      {&s->linear, maps},
      {&s->slopes, back * 4 * maps},
      {&s->pulled, pull * 3 * pixels * widest},
      {&s->shifted, pull * 2 * k * s->shifted_length},
      {&s->tail, pull * call->num_filters * WIDE},
      {&s->remains.weight, back * layer->groups * call->packed_rows * call->out_pitch},
      {&s->remains.bias, back * layer->groups * call->out_pitch},
      {&s->remains.head, pull * layer->groups * call->head_rows * layer->width * channels},
  };
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
    *fields[i].field = memory ? (float *)(memory + used) : NULL;
    used += (size_t)bessel_round_up(fields[i].floats + OVERRUN, 32) * sizeof(float);
  }
  return used;
}

static size_t part_bytes(const bessel_call *call) {
  part measured;
  return (size_t)bessel_round_up((int64_t)lay_out(&measured, call, NULL), 4096);
}

static bessel_remains remains(const bessel_call *call, int64_t number) {
  part s;
  lay_out(&s, call, call->memory + (size_t)number * call->part_bytes);
  return s.remains;
}

typedef enum { FLOAT, FROM_BFLOAT16, TO_BFLOAT16 } conversion;

INLINE void move(const conversion kind, void *to, int64_t to_index, const void *from, int64_t from_index) {
  uint32_t bits;
  if (kind == FLOAT) {
    ((float *)to)[to_index] = ((const float *)from)[from_index];
  } else if (kind == FROM_BFLOAT16) {
    bits = (uint32_t)((const uint16_t *)from)[from_index] << 16;
    memcpy((float *)to + to_index, &bits, 4);
  } else {
    memcpy(&bits, (const float *)from + from_index, 4);
    /* Round to even; a number that is none stays one. */
    const int not_a_number = (bits & 0x7fffffff) > 0x7f800000;
    ((uint16_t *)to)[to_index] =
        (uint16_t)((not_a_number ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
}

typedef float quad __attribute__((vector_size(16)));
typedef float unaligned_quad __attribute__((vector_size(16), aligned(4), may_alias));
#ifdef __clang__
#define SHUFFLE(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
typedef int quad_index __attribute__((vector_size(16)));
#define SHUFFLE(a, b, i, j, k, l) __builtin_shuffle(a, b, (quad_index){i, j, k, l})
#endif

/* Four by four numbers: to[j * to_row + i] = from[i * from_row + j]. */
INLINE void transpose(float *to, int64_t to_row, const float *from, int64_t from_row) {
  quad rows[4], pairs[4];
  for (int i = 0; i < 4; i++) rows[i] = *(const unaligned_quad *)(from + i * from_row);
  pairs[0] = SHUFFLE(rows[0], rows[1], 0, 4, 1, 5);
  pairs[1] = SHUFFLE(rows[2], rows[3], 0, 4, 1, 5);
  pairs[2] = SHUFFLE(rows[0], rows[1], 2, 6, 3, 7);
  pairs[3] = SHUFFLE(rows[2], rows[3], 2, 6, 3, 7);
  for (int i = 0; i < 4; i += 2) {
    *(unaligned_quad *)(to + i * to_row) = SHUFFLE(pairs[i], pairs[i + 1], 0, 1, 4, 5);
    *(unaligned_quad *)(to + (i + 1) * to_row) = SHUFFLE(pairs[i], pairs[i + 1], 2, 3, 6, 7);
  }
}

/* Move (pixel, channel) numbers between places of any strides. */
INLINE void move_pixels(const conversion kind, int64_t pixels, int64_t channels, void *to, int64_t to_pixel,
                        int64_t to_channel, const void *from, int64_t from_pixel, int64_t from_channel) {
  if (kind == FLOAT && to_channel == 1 && from_channel == 1) {
    for (int64_t x = 0; x < pixels; x++)
      memcpy((float *)to + x * to_pixel, (const float *)from + x * from_pixel,
             (size_t)channels * sizeof(float));
    return;
  }
  const int crossed =
      kind == FLOAT && ((to_channel == 1 && from_pixel == 1) || (to_pixel == 1 && from_channel == 1));
  /* Sixteen channels at a time: their cache lines stay while the pixels pass. */
  for (int64_t first = 0; first < channels; first += 16) {
    const int64_t last = smaller(first + 16, channels);
    for (int64_t x = 0; x < pixels;) {
      const int64_t wide = crossed && x + 4 <= pixels ? 4 : 1;
      int64_t c = first;
      for (; wide == 4 && c + 4 <= last; c += 4) {
        float *target = (float *)to + x * to_pixel + c * to_channel;
        const float *source = (const float *)from + x * from_pixel + c * from_channel;
        if (to_channel == 1)
          transpose(target, to_pixel, source, from_channel);
        else
          transpose(target, to_channel, source, from_pixel);
      }
      for (; c < last; c++)
        for (int64_t i = x; i < x + wide; i++)
          move(kind, to, i * to_pixel + c * to_channel, from, i * from_pixel + c * from_channel);
      x += wide;
    }
  }
}

/* The pixels of an input row are kept phase by phase: those that one tap meets stand together. */
typedef struct {
  int64_t first, count; /* pixels of the image: first, first + stride, ... */
  int64_t place;        /* in the row */
} phase_pixels;

static phase_pixels phase_of(const bessel_call *call, int64_t phase) {
  const bessel_layer *layer = call->layer;
  const int64_t step = layer->stride[1], before = layer->padding[1];
  const int64_t skipped = before > phase ? (before - phase + step - 1) / step : 0;
  phase_pixels found = {.first = phase + skipped * step - before};
  found.count = found.first < layer->width ? (layer->width - found.first + step - 1) / step : 0;
  found.place = (phase * call->phase_width + skipped) * layer->in_channels;
  return found;
}

static void load_row(const part *s, int64_t padded_row) {
  const bessel_call *call = s->call;
  const bessel_layer *layer = s->layer;
  const int64_t row = padded_row - layer->padding[0], channels = layer->in_channels;
  float *target = s->ring + padded_row % call->ring * call->row_pitch;
  memset(target, 0, (size_t)call->row_pitch * sizeof(float));
  if (row < 0 || row >= layer->height) return;
  const bessel_strides at = layer->input;
  for (int64_t phase = 0; phase < layer->stride[1]; phase++) {
    const phase_pixels found = phase_of(call, phase);
    const int64_t start =
        s->image * at.image + s->group * channels * at.channel + row * at.row + found.first * at.pixel;
    float *to = target + found.place;
    const int64_t pixel = at.pixel * layer->stride[1];
    if (layer->bfloat16)
      move_pixels(FROM_BFLOAT16, found.count, channels, to, channels, 1,
                  (const uint16_t *)call->input + start, pixel, at.channel);
    else
      move_pixels(FLOAT, found.count, channels, to, channels, 1, (const float *)call->input + start, pixel,
                  at.channel);
  }
}

/* Hand over a row of the input's gradient; rows before `head_end` are kept for the caller. */
static void write_row(const part *s, int64_t padded_row, int64_t head_first, int64_t head_end) {
  const bessel_call *call = s->call;
  const bessel_layer *layer = s->layer;
  const int64_t row = padded_row - layer->padding[0], channels = layer->in_channels, step = layer->stride[1];
  float *source = s->ring_gradient + padded_row % call->ring * call->row_pitch;
  if (row >= 0 && row < layer->height) {
    const bessel_strides at = layer->to_input;
    const int64_t start = s->image * at.image + s->group * channels * at.channel + row * at.row;
    const int64_t head_row = s->group * call->head_rows + padded_row - head_first;
    for (int64_t phase = 0; phase < step; phase++) {
      const phase_pixels found = phase_of(call, phase);
      const int64_t first = start + found.first * at.pixel, pixel = at.pixel * step;
      const float *from = source + found.place;
      if (padded_row < head_end)
        move_pixels(FLOAT, found.count, channels,
                    s->remains.head + (head_row * layer->width + found.first) * channels, channels * step, 1,
                    from, channels, 1);
      else if (layer->bfloat16)
        move_pixels(TO_BFLOAT16, found.count, channels, (uint16_t *)call->to_input + first, pixel, at.channel,
                    from, channels, 1);
      else
        move_pixels(FLOAT, found.count, channels, (float *)call->to_input + first, pixel, at.channel, from,
                    channels, 1);
    }
  }
  memset(source, 0, (size_t)call->row_pitch * sizeof(float));
}

/* Where tap column i of an output pixel lies in an input row, relative to the first pixel of the row. */
INLINE int64_t tap_place(const bessel_call *call, int64_t i) {
  const int64_t at = i * call->layer->dilation[1], step = call->layer->stride[1];
  return (at % step * call->phase_width + at / step) * call->layer->in_channels;
}

/* One pass of the analysis over a row of the tile.

   `rows` and `columns` say where the k rows and columns of taps lie. Two vectors at a time stay in registers
   with all their sums; mirrored taps are added or subtracted on the way. */
typedef struct {
  const bessel_pass *pass;
  int64_t k, length, pitch;
  const float *const *rows;
  const int64_t *columns;
  float *phi;
} analysis;

enum { PAIR = 2, MOST_FILTERS = BESSEL_REGISTERS == 32 ? 6 : 3 };

INLINE void analyse_pass(const int evens, const int odds, const int odd_rows, const analysis *m) {
  const int64_t k = m->k, half = k / 2;
  const int centre = k % 2;
  for (int64_t start = 0; start < m->length; start += WIDE) {
    const float *taps = m->pass->taps;
    vec even[MOST_FILTERS][PAIR], odd[MOST_FILTERS][PAIR];
#pragma GCC unroll 6
    for (int f = 0; f < evens; f++) even[f][0] = even[f][1] = (vec){0};
#pragma GCC unroll 6
    for (int f = 0; f < odds; f++) odd[f][0] = odd[f][1] = (vec){0};
    for (int64_t i = 0; i < half + (centre && !odd_rows); i++) {
      const int single = i == half;
      const float *top = m->rows[i] + start, *bottom = m->rows[k - 1 - i] + start;
      for (int64_t j = 0; j < half; j++) {
        const int64_t left = m->columns[j], right = m->columns[k - 1 - j];
#pragma GCC unroll 2
        for (int v = 0; v < PAIR; v++) {
          vec r = load(bottom + right + v * LANES), l = load(bottom + left + v * LANES);
          if (odd_rows) {
            r -= load(top + right + v * LANES);
            l -= load(top + left + v * LANES);
          } else if (!single) {
            r += load(top + right + v * LANES);
            l += load(top + left + v * LANES);
          }
          const vec sum = r + l, difference = r - l;
#pragma GCC unroll 6
          for (int f = 0; f < evens; f++) even[f][v] += taps[f] * sum;
#pragma GCC unroll 6
          for (int f = 0; f < odds; f++) odd[f][v] += taps[evens + f] * difference;
        }
        taps += evens + odds;
      }
      if (centre) {
#pragma GCC unroll 2
        for (int v = 0; v < PAIR; v++) {
          vec middle = load(bottom + m->columns[half] + v * LANES);
          if (odd_rows)
            middle -= load(top + m->columns[half] + v * LANES);
          else if (!single)
            middle += load(top + m->columns[half] + v * LANES);
#pragma GCC unroll 6
          for (int f = 0; f < evens; f++) even[f][v] += taps[f] * middle;
        }
        taps += evens;
      }
    }
    float *to_even = m->phi + m->pass->even_plane * m->pitch + start;
    float *to_odd = m->phi + m->pass->odd_plane * m->pitch + start;
#pragma GCC unroll 6
    for (int f = 0; f < evens; f++)
#pragma GCC unroll 2
      for (int v = 0; v < PAIR; v++) store(to_even + f * m->pitch + v * LANES, even[f][v]);
#pragma GCC unroll 6
    for (int f = 0; f < odds; f++)
#pragma GCC unroll 2
      for (int v = 0; v < PAIR; v++) store(to_odd + f * m->pitch + v * LANES, odd[f][v]);
  }
}

/* The transpose, for row i of the taps: what the gradient of phi adds at each column of taps.

   `sums` has a row of `length` floats for each of the k columns; `add` to what an earlier pass put there. */
typedef struct {
  const bessel_pass *pass;
  int64_t k, row, start, stop, pitch, sums_pitch;
  const float *phi;
  float *sums;
  int add;
} synthesis;

INLINE void synthesise_pass(const int evens, const int odds, const synthesis *m) {
  const int64_t k = m->k, half = k / 2;
  const float *even_planes = m->phi + m->pass->even_plane * m->pitch;
  const float *odd_planes = m->phi + m->pass->odd_plane * m->pitch;
  for (int64_t start = m->start; start < m->stop; start += WIDE) {
    const float *taps = m->pass->taps + m->row * m->pass->taps_per_row;
    vec even[MOST_FILTERS][PAIR], odd[MOST_FILTERS][PAIR];
#pragma GCC unroll 6
    for (int f = 0; f < evens; f++)
#pragma GCC unroll 2
      for (int v = 0; v < PAIR; v++)
        even[f][v] = load(even_planes + f * m->pitch + start - m->start + v * LANES);
#pragma GCC unroll 6
    for (int f = 0; f < odds; f++)
#pragma GCC unroll 2
      for (int v = 0; v < PAIR; v++)
        odd[f][v] = load(odd_planes + f * m->pitch + start - m->start + v * LANES);
    for (int64_t j = 0; j < half; j++) {
      float *to_left = m->sums + j * m->sums_pitch + start,
            *to_right = m->sums + (k - 1 - j) * m->sums_pitch + start;
#pragma GCC unroll 2
      for (int v = 0; v < PAIR; v++) {
        vec sum = {0}, difference = {0};
#pragma GCC unroll 6
        for (int f = 0; f < evens; f++) sum += taps[f] * even[f][v];
#pragma GCC unroll 6
        for (int f = 0; f < odds; f++) difference += taps[evens + f] * odd[f][v];
        vec left = sum - difference, right = sum + difference;
        if (m->add) {
          left += load(to_left + v * LANES);
          right += load(to_right + v * LANES);
        }
        store(to_left + v * LANES, left);
        store(to_right + v * LANES, right);
      }
      taps += evens + odds;
    }
    if (k % 2 == 0) continue;
    float *to_middle = m->sums + half * m->sums_pitch + start;
#pragma GCC unroll 2
    for (int v = 0; v < PAIR; v++) {
      vec sum = {0};
#pragma GCC unroll 6
      for (int f = 0; f < evens; f++) sum += taps[f] * even[f][v];
      if (m->add) sum += load(to_middle + v * LANES);
      store(to_middle + v * LANES, sum);
    }
  }
}

/* A function for every number of filters. */
#define PASS(e, o)                                                                 \
  static void analyse_0_##e##_##o(const analysis *m) { analyse_pass(e, o, 0, m); } \
  static void analyse_1_##e##_##o(const analysis *m) { analyse_pass(e, o, 1, m); } \
  static void synthesise_##e##_##o(const synthesis *m) { synthesise_pass(e, o, m); }
#if BESSEL_REGISTERS == 32
#define EACH_ODD(what, e) what(e, 0) what(e, 1) what(e, 2) what(e, 3) what(e, 4) what(e, 5) what(e, 6)
/* clang-format off */
#define EACH(what) \
  EACH_ODD(what, 0) EACH_ODD(what, 1) EACH_ODD(what, 2) EACH_ODD(what, 3) EACH_ODD(what, 4) EACH_ODD(what, 5) \
  EACH_ODD(what, 6)
/* clang-format on */
#else
#define EACH_ODD(what, e) what(e, 0) what(e, 1) what(e, 2) what(e, 3)
#define EACH(what) EACH_ODD(what, 0) EACH_ODD(what, 1) EACH_ODD(what, 2) EACH_ODD(what, 3)
#endif
EACH(PASS)
typedef void analysis_function(const analysis *);
typedef void synthesis_function(const synthesis *);
#define ANALYSE_0(e, o) [e][o] = analyse_0_##e##_##o,
#define ANALYSE_1(e, o) [e][o] = analyse_1_##e##_##o,
#define SYNTHESISE(e, o) [e][o] = synthesise_##e##_##o,
static analysis_function *const analyses[2][MOST_FILTERS + 1][MOST_FILTERS + 1] = {{EACH(ANALYSE_0)},
                                                                                   {EACH(ANALYSE_1)}};
static synthesis_function *const syntheses[MOST_FILTERS + 1][MOST_FILTERS + 1] = {EACH(SYNTHESISE)};

enum { MOST_TAPS = BESSEL_MOST_TAPS };

static void analyse(const part *s) {
  const bessel_call *call = s->call;
  const bessel_layer *layer = s->layer;
  const int64_t k = layer->kernel_size, channels = layer->in_channels, length = s->columns * channels;
  int64_t columns[MOST_TAPS];
  const float *rows[MOST_TAPS];
  for (int64_t i = 0; i < k; i++) columns[i] = tap_place(call, i);
  for (int64_t r = 0; r < s->rows; r++) {
    const int64_t top = bessel_first_row(layer, s->y + r);
    for (int64_t i = 0; i < k; i++)
      rows[i] = s->ring + (top + i * layer->dilation[0]) % call->ring * call->row_pitch + s->x * channels;
    for (int64_t n = 0; n < call->num_passes; n++) {
      const bessel_pass *pass = &call->passes[n];
      analyses[pass->odd_rows][pass->num_even][pass->num_odd](
          &(analysis){pass, k, length, call->plane_pitch, rows, columns, s->phi + r * length});
    }
  }
  if (layer->mirror) return;
  for (int64_t v = 1; v < layer->num_orders; v++) {
    const bessel_order *order = &call->orders[v];
    for (int64_t j = 0; j < order->count; j++) {
      const float *cosine = s->phi + (order->cosine + j) * call->plane_pitch;
      const float *sine = s->phi + (order->sine + j) * call->plane_pitch;
      float *sum = s->phi + (order->sum + j) * call->plane_pitch;
      for (int64_t i = 0; i < s->pixels * channels; i += LANES)
        store(sum + i, load(cosine + i) + load(sine + i));
    }
  }
}

/* phi from plane `first` on times a packed matrix. */
static void mix_one(const part *s, const bessel_order *order, int64_t first, int64_t matrix, int64_t vectors,
                    float *to, int64_t to_row) {
  const bessel_call *call = s->call;
  const int64_t channels = s->layer->in_channels, rows = order->count * channels;
  const float *weights =
      call->packed + (s->group * call->packed_rows + order->packed + matrix * rows) * call->out_pitch;
  multiply((product){.a = s->phi + first * call->plane_pitch,
                     .a_row = channels,
                     .a_outer = call->plane_pitch,
                     .a_inner = 1,
                     .b = weights,
                     .b_row = vectors * LANES,
                     .c = to,
                     .c_row = to_row,
                     .outer = order->count,
                     .inner = channels},
           s->pixels, vectors);
}

/* All maps, added up to power and linear; kept if there is a backward pass. */
static void mix(const part *s) {
  const bessel_call *call = s->call;
  const bessel_layer *layer = s->layer;
  const int64_t size = s->pixels * call->out_pitch, vectors = call->out_pitch / LANES;
  const int is_signed = layer->response == BESSEL_SIGNED;
  float *power = s->power;
  for (int64_t v = 0; v < layer->num_orders; v++) {
    const bessel_order *order = &call->orders[v];
    float *maps = s->maps + (call->backward ? order->map * size : 0);
    if (v == 0) {
      float *map = is_signed ? s->linear : maps;
      mix_one(s, order, order->cosine, 0, vectors, map, call->out_pitch);
      for (int64_t i = 0; i < size; i++) power[i] = is_signed ? 0 : map[i] * map[i];
    } else if (layer->mirror) {
      /* Maps of cosine and sine, two each: p and q stand side by side. */
      for (int part_of = 0; part_of < 2; part_of++) {
        float *pair = maps + (call->backward ? 2 * part_of * size : 0);
        mix_one(s, order, part_of ? order->sine : order->cosine, 0, 2 * vectors, pair, 2 * call->out_pitch);
        for (int64_t pixel = 0; pixel < s->pixels; pixel++)
          for (int64_t o = 0; o < call->out_pitch; o++) {
            const float *both = pair + 2 * pixel * call->out_pitch + o;
            power[pixel * call->out_pitch + o] +=
                both[0] * both[0] + both[call->out_pitch] * both[call->out_pitch];
          }
      }
    } else {
      float *first = maps, *second = maps + size, *third = call->backward ? s->slopes : maps + 2 * size;
      mix_one(s, order, order->sum, 0, vectors, first, call->out_pitch);
      mix_one(s, order, order->sine, 1, vectors, second, call->out_pitch);
      mix_one(s, order, order->cosine, 2, vectors, third, call->out_pitch);
      for (int64_t i = 0; i < size; i += LANES) {
        const vec shared = load(first + i), a = shared - load(second + i), b = shared - load(third + i);
        store(power + i, load(power + i) + a * a + b * b);
        if (call->backward) {
          store(first + i, a);
          store(second + i, b);
        }
      }
    }
  }
}

static void write_response(const part *s) {
  const bessel_call *call = s->call;
  const bessel_layer *layer = s->layer;
  const int64_t channels = layer->out_channels, pitch = call->out_pitch;
  const float *bias = call->bias ? call->bias + s->group * channels : NULL;
  float *value = s->power;
  if (layer->response != BESSEL_POWER)
    for (int64_t i = 0; i < s->pixels * pitch; i++)
      /* The smallest normal number stands for 0, where the root has no slope. */
      value[i] = __builtin_sqrtf(value[i] < FLT_MIN ? FLT_MIN : value[i]);
  if (layer->response == BESSEL_SIGNED)
    for (int64_t i = 0; i < s->pixels * pitch; i++) value[i] += s->linear[i];
  if (bias)
    for (int64_t pixel = 0; pixel < s->pixels; pixel++)
      for (int64_t o = 0; o < channels; o++) value[pixel * pitch + o] += bias[o];
  const bessel_strides at = layer->output;
  for (int64_t r = 0; r < s->rows; r++)
    move_pixels(FLOAT, s->columns, channels,
                call->output + s->image * at.image + s->group * channels * at.channel + (s->y + r) * at.row +
                    s->x * at.pixel,
                at.pixel, at.channel, value + r * s->columns * pitch, pitch, 1);
}

/* The gradient of the response: that of order 0 stays in linear, the slope of all other maps in power. */
static void read_gradient(const part *s) {
  const bessel_call *call = s->call;
  const bessel_layer *layer = s->layer;
  const int64_t channels = layer->out_channels, pitch = call->out_pitch, size = s->pixels * pitch;
  const bessel_strides at = layer->gradient;
  float *gradient = s->linear, *power = s->power, *bias = s->remains.bias + s->group * pitch;
  if (pitch > channels) memset(gradient, 0, (size_t)size * sizeof(float));
  for (int64_t r = 0; r < s->rows; r++)
    move_pixels(FLOAT, s->columns, channels, gradient + r * s->columns * pitch, pitch, 1,
                call->gradient + s->image * at.image + s->group * channels * at.channel +
                    (s->y + r) * at.row + s->x * at.pixel,
                at.pixel, at.channel);
  for (int64_t pixel = 0; pixel < s->pixels; pixel++)
    for (int64_t o = 0; o < pitch; o++) bias[o] += gradient[pixel * pitch + o];
  for (int64_t i = 0; i < size; i++)
    power[i] = layer->response == BESSEL_POWER
                   ? 2 * gradient[i]
                   : gradient[i] / __builtin_sqrtf(power[i] < FLT_MIN ? FLT_MIN : power[i]);
}

/* Gradient of a packed matrix: phi from plane `first` on, transposed, times the gradient of its maps. */
static void pull_to_weight(const part *s, const bessel_order *order, int64_t first, int64_t matrix,
                           int64_t vectors, const float *slopes) {
  const bessel_call *call = s->call;
  const int64_t channels = s->layer->in_channels, rows = order->count * channels, columns = vectors * LANES;
  float *target =
      s->remains.weight + (s->group * call->packed_rows + order->packed + matrix * rows) * call->out_pitch;
  for (int64_t j = 0; j < order->count; j++)
    multiply((product){.a = s->phi + (first + j) * call->plane_pitch,
                       .a_row = 1,
                       .a_inner = channels,
                       .b = slopes,
                       .b_row = columns,
                       .c = target + j * channels * columns,
                       .c_row = columns,
                       .outer = 1,
                       .inner = s->pixels,
                       .add = 1},
             channels, vectors);
}

/* Gradients of maps, `terms` side by side, times a transposed matrix: (pixel, radial function, channel). */
static void pull_to_phi(const part *s, const bessel_order *order, int64_t matrix, int64_t terms,
                        const float *slopes, float *to) {
  const bessel_call *call = s->call;
  const bessel_layer *layer = s->layer;
  const int64_t columns = bessel_round_up(order->count * layer->in_channels, LANES);
  const float *weights = call->transposed + s->group * call->transposed_size + order->transposed +
                         matrix * layer->out_channels * columns;
  multiply((product){.a = slopes,
                     .a_row = terms * call->out_pitch,
                     .a_outer = call->out_pitch,
                     .a_inner = 1,
                     .b = weights,
                     .b_row = columns,
                     .c = to,
                     .c_row = columns,
                     .outer = terms,
                     .inner = layer->out_channels},
           s->pixels, columns / LANES);
}

/* (pixel, radial function, channel), `less` taken away if given, into the planes of phi from `first` on. */
static void spread(const part *s, const bessel_order *order, const float *from, const float *less,
                   int64_t first) {
  const int64_t channels = s->layer->in_channels, columns = bessel_round_up(order->count * channels, LANES);
  for (int64_t j = 0; j < order->count; j++) {
    float *plane = s->phi + (first + j) * s->call->plane_pitch;
    for (int64_t pixel = 0; pixel < s->pixels; pixel++) {
      const int64_t start = pixel * columns + j * channels;
      for (int64_t c = 0; c < channels; c += LANES) {
        const vec value = load(from + start + c);
        store(plane + pixel * channels + c, less ? value - load(less + start + c) : value);
      }
    }
  }
}

/* Gradients of the weights, and of phi in its place. */
static void pull_back(const part *s) {
  const bessel_call *call = s->call;
  const bessel_layer *layer = s->layer;
  const int64_t size = s->pixels * call->out_pitch, vectors = call->out_pitch / LANES;
  const float *slope = s->power;
  float *a = s->slopes, *b = a + size, *difference = b + size, *sum = difference + size;
  float *first = s->pulled;
  for (int64_t v = 0; v < layer->num_orders; v++) {
    const bessel_order *order = &call->orders[v];
    const float *maps = s->maps + order->map * size;
    const int64_t pulled = s->pixels * bessel_round_up(order->count * layer->in_channels, LANES);
    if (v == 0) {
      const float *gradient = s->linear;
      if (layer->response != BESSEL_SIGNED) {
        for (int64_t i = 0; i < size; i++) a[i] = maps[i] * slope[i];
        gradient = a;
      }
      pull_to_weight(s, order, order->cosine, 0, vectors, gradient);
      if (!call->to_input) continue;
      pull_to_phi(s, order, 0, 1, gradient, first);
      spread(s, order, first, NULL, order->cosine);
    } else if (layer->mirror) {
      for (int part_of = 0; part_of < 2; part_of++) {
        const float *pair = maps + 2 * part_of * size;
        const int64_t plane = part_of ? order->sine : order->cosine;
        for (int64_t pixel = 0; pixel < s->pixels; pixel++)
          for (int64_t o = 0; o < 2 * call->out_pitch; o++) {
            const int64_t i = 2 * pixel * call->out_pitch + o;
            a[i] = pair[i] * slope[pixel * call->out_pitch + o % call->out_pitch];
          }
        pull_to_weight(s, order, plane, 0, 2 * vectors, a);
        if (!call->to_input) continue;
        pull_to_phi(s, order, 0, 2, a, first);
        spread(s, order, first, NULL, plane);
      }
    } else {
      for (int64_t i = 0; i < size; i += LANES) {
        const vec at = load(slope + i), x = load(maps + i) * at, y = load(maps + size + i) * at;
        store(a + i, x);
        store(b + i, y);
        store(difference + i, x - y);
        store(sum + i, x + y);
      }
      pull_to_weight(s, order, order->sum, 0, vectors, a);
      pull_to_weight(s, order, order->sine, 1, vectors, difference);
      pull_to_weight(s, order, order->cosine, 2, vectors, sum);
      if (!call->to_input) continue;
      float *second = first + pulled, *third = second + pulled;
      pull_to_phi(s, order, 0, 1, sum, first);
      pull_to_phi(s, order, 1, 1, a, second);
      pull_to_phi(s, order, 2, 1, b, third);
      spread(s, order, first, third, order->cosine);
      spread(s, order, first, second, order->sine);
    }
  }
}

/* Add what each column of taps has to the rows of the input's gradient that it came from: the sum to row
   `bottom`, and, of taps that mirror each other in y, the difference to row `top`. */
static void add_shifted(const part *s, int64_t top, int64_t bottom) {
  const bessel_call *call = s->call;
  const bessel_layer *layer = s->layer;
  const int64_t k = layer->kernel_size, channels = layer->in_channels, step = layer->stride[1];
  float *const gradient = s->ring_gradient + s->x * channels;
  float *top_row = gradient + top % call->ring * call->row_pitch;
  float *bottom_row = gradient + bottom % call->ring * call->row_pitch;
  const float *odd_rows = s->shifted + k * s->shifted_length;
  for (int64_t phase = 0; phase < smaller(step, (k - 1) * layer->dilation[1] + 1); phase++) {
    int64_t places[MOST_TAPS];
    int64_t count = 0, least = INT64_MAX, most = 0;
    for (int64_t i = 0; i < k; i++) {
      const int64_t at = i * layer->dilation[1];
      if (at % step != phase) continue;
      const int64_t shift = at / step * channels;
      places[count++] = i * s->shifted_length + s->margin - shift;
      least = smaller(least, shift);
      most = larger(most, shift);
    }
    if (!count) continue;
    const int64_t place = phase * call->phase_width * channels;
    for (int64_t i = least; i < most + s->columns * channels; i += LANES) {
      vec even = {0}, odd = {0};
      for (int64_t n = 0; n < count; n++) even += load(s->shifted + places[n] + i);
      if (top != bottom) {
        for (int64_t n = 0; n < count; n++) odd += load(odd_rows + places[n] + i);
        store(top_row + place + i, load(top_row + place + i) + (even - odd));
      }
      store(bottom_row + place + i, load(bottom_row + place + i) + (even + odd));
    }
  }
}

/* The transpose of `analyse`: the gradient of phi to that of the input rows. */
static void synthesise(part *s) {
  const bessel_call *call = s->call;
  const bessel_layer *layer = s->layer;
  const int64_t k = layer->kernel_size, half = k / 2, length = s->columns * layer->in_channels;
  const int64_t whole = length / WIDE * WIDE, rest = length - whole;
  if (s->shifted_columns != s->columns) {
    memset(s->shifted, 0, (size_t)(2 * k * s->shifted_length) * sizeof(float));
    memset(s->tail, 0, (size_t)(call->num_filters * WIDE) * sizeof(float));
    s->shifted_columns = s->columns;
  }
  for (int64_t r = 0; r < s->rows; r++) {
    const float *phi = s->phi + r * length;
    /* The next row begins in the last vectors. */
    for (int64_t f = 0; rest && f < call->num_filters; f++)
      memcpy(s->tail + f * WIDE, phi + f * call->plane_pitch + whole, (size_t)rest * sizeof(float));
    for (int64_t i = 0; i < half + k % 2; i++) {
      int added[2] = {0, 0};
      for (int64_t n = 0; n < call->num_passes; n++) {
        const bessel_pass *pass = &call->passes[n];
        if (pass->odd_rows && i == half) continue;
        float *sums = s->shifted + pass->odd_rows * k * s->shifted_length + s->margin;
        synthesis m = {
            pass, k, i, 0, whole, call->plane_pitch, s->shifted_length, phi, sums, added[pass->odd_rows]++};
        synthesis_function *function = syntheses[pass->num_even][pass->num_odd];
        function(&m);
        m.start = whole, m.stop = length, m.pitch = WIDE, m.phi = s->tail;
        function(&m);
      }
      const int64_t first = bessel_first_row(layer, s->y + r);
      add_shifted(s, first + i * layer->dilation[0], first + (k - 1 - i) * layer->dilation[0]);
    }
  }
}

/* Rows y to `end` of one image and group. */
static void run_rows(part *s, int64_t y, int64_t end) {
  const bessel_call *call = s->call;
  const bessel_layer *layer = s->layer;
  const int pull = call->backward && call->to_input;
  const int64_t head_first = bessel_first_row(layer, y), head_end = y ? bessel_last_row(layer, y - 1) : 0;
  int64_t loaded = head_first, written = y ? smaller(head_first, head_end) : 0;
  for (; y < end; y += s->rows) {
    s->y = y;
    s->rows = smaller(call->tile_rows, end - y);
    const int64_t first = bessel_first_row(layer, y), last = bessel_last_row(layer, y + s->rows - 1);
    for (; pull && written < first; written++) write_row(s, written, head_first, head_end);
    for (loaded = larger(loaded, first); loaded < last; loaded++) load_row(s, loaded);
    for (s->x = 0; s->x < layer->out_width; s->x += s->columns) {
      s->columns = smaller(call->tile_columns, layer->out_width - s->x);
      s->pixels = s->rows * s->columns;
      analyse(s);
      mix(s);
      if (!call->backward) {
        write_response(s);
        continue;
      }
      read_gradient(s);
      pull_back(s);
      if (pull) synthesise(s);
    }
  }
  if (!pull) return;
  const int64_t stop =
      end == layer->out_height ? layer->height + layer->padding[0] : bessel_last_row(layer, end - 1);
  for (; written < stop; written++) write_row(s, written, head_first, head_end);
  /* Rows below the image are written nowhere. */
  memset(s->ring_gradient, 0, (size_t)(call->ring * call->row_pitch) * sizeof(float));
}

static void run(const bessel_call *call, int64_t number) {
  const bessel_layer *layer = call->layer;
  char *memory = call->memory + (size_t)number * call->part_bytes;
  part s;
  int64_t row, last;
  lay_out(&s, call, memory);
  if (call->backward) /* what is added to: the remains, which come last, and the rows of the gradient */
    memset(s.remains.weight, 0, (size_t)(memory + call->part_bytes - (char *)s.remains.weight));
  if (call->to_input) memset(s.ring_gradient, 0, (size_t)(call->ring * call->row_pitch) * sizeof(float));
  bessel_part_rows(call, number, &row, &last);
  while (row < last) {
    const int64_t y = row % layer->out_height, end = smaller(layer->out_height, y + last - row);
    s.image = row / layer->out_height;
    for (s.group = 0; s.group < layer->groups; s.group++) run_rows(&s, y, end);
    row += end - y;
  }
}

const bessel_kernel BESSEL_KERNEL = {BESSEL_NAME, LANES, OVERRUN, MOST_FILTERS, part_bytes, run, remains};

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
#define CHUNK (4 * LANES) /* floats that are folded together */
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
BLOCKS_12(1) BLOCKS_12(2) BLOCKS_8(3) BLOCKS_6(4)
static block_function *const blocks[4][12] = {{NAMES_12(1)}, {NAMES_12(2)}, {NAMES_8(3)}, {NAMES_6(4)}};
static const int most_rows[4] = {12, 12, 8, 6};
#else
BLOCKS_6(1) BLOCKS_6(2) BLOCKS_3(3) BLOCKS_3(4)
static block_function *const blocks[4][6] = {{NAMES_6(1)}, {NAMES_6(2)}, {NAMES_3(3)}, {NAMES_3(4)}};
static const int most_rows[4] = {6, 6, 3, 3};
#endif
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
  float *folded;               /* taps of a chunk after folding */
  float *maps;                 /* (maps, pixel, out_pitch); forward: those of one order */
  float *power, *linear;       /* (pixel, out_pitch): sum of squares, then slope; map of order 0 */
  float *slopes;               /* gradients of the maps of an order: A, B, A - B, A + B */
  float *pulled;               /* gradient of phi of an order: three products */
  float *shifted;              /* (2, k, shifted_length): what two rows of taps add to the input */
  float *tail;                 /* (filters, CHUNK): the end of a row of phi, filled up with zeros */
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
  s->shifted_length = bessel_round_up(2 * s->margin + call->tile_columns * channels + 2 * CHUNK, LANES);
  size_t used = 0;
  const struct {
    float **field;
    int64_t floats;
  } fields[] = {
      {&s->ring, call->ring * call->row_pitch},
      {&s->ring_gradient, pull * call->ring * call->row_pitch},
      {&s->phi, call->num_planes * call->plane_pitch},
      {&s->folded, k * k * CHUNK},
      {&s->maps, maps * (back ? call->num_maps : 3)},
      {&s->power, maps},
      {&s->linear, maps},
      {&s->slopes, back * 4 * maps},
      {&s->pulled, pull * 3 * pixels * widest},
      {&s->shifted, pull * 2 * k * s->shifted_length},
      {&s->tail, pull * call->num_filters * CHUNK},
      {&s->remains.weight, back * layer->groups * call->packed_rows * call->out_pitch},
      {&s->remains.bias, back * layer->groups * call->out_pitch},
      {&s->remains.head, pull * layer->groups * call->head_rows * layer->width * channels},
  };
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
    *fields[i].field = memory ? (float *)(memory + used) : NULL;
    used += (size_t)bessel_round_up(fields[i].floats + CHUNK, 32) * sizeof(float);
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
    ((uint16_t *)to)[to_index] = (uint16_t)((not_a_number ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
}

/* Move (pixel, channel) numbers between places of any strides. */
INLINE void move_pixels(const conversion kind, int64_t pixels, int64_t channels, void *to, int64_t to_pixel,
                        int64_t to_channel, const void *from, int64_t from_pixel, int64_t from_channel) {
  if (to_channel == 1 && from_channel == 1) {
    for (int64_t x = 0; x < pixels; x++)
      for (int64_t c = 0; c < channels; c++) move(kind, to, x * to_pixel + c, from, x * from_pixel + c);
    return;
  }
  /* Sixteen channels at a time: their cache lines stay while the pixels pass. */
  for (int64_t first = 0; first < channels; first += 16) {
    const int64_t last = smaller(first + 16, channels);
    for (int64_t x = 0; x < pixels; x++)
      for (int64_t c = first; c < last; c++)
        move(kind, to, x * to_pixel + c * to_channel, from, x * from_pixel + c * from_channel);
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
    const int64_t start = s->image * at.image + s->group * channels * at.channel + row * at.row + found.first * at.pixel;
    float *to = target + found.place;
    const int64_t pixel = at.pixel * layer->stride[1];
    if (layer->bfloat16)
      move_pixels(FROM_BFLOAT16, found.count, channels, to, channels, 1, (const uint16_t *)call->input + start, pixel,
                  at.channel);
    else
      move_pixels(FLOAT, found.count, channels, to, channels, 1, (const float *)call->input + start, pixel, at.channel);
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
        move_pixels(FLOAT, found.count, channels, s->remains.head + (head_row * layer->width + found.first) * channels,
                    channels * step, 1, from, channels, 1);
      else if (layer->bfloat16)
        move_pixels(TO_BFLOAT16, found.count, channels, (uint16_t *)call->to_input + first, pixel, at.channel, from,
                    channels, 1);
      else
        move_pixels(FLOAT, found.count, channels, (float *)call->to_input + first, pixel, at.channel, from, channels, 1);
    }
  }
  memset(source, 0, (size_t)call->row_pitch * sizeof(float));
}

/* Where tap column i of an output pixel lies in an input row, relative to the first pixel of the row. */
INLINE int64_t tap_place(const bessel_call *call, int64_t i) {
  const int64_t at = i * call->layer->dilation[1], step = call->layer->stride[1];
  return (at % step * call->phase_width + at / step) * call->layer->in_channels;
}

/* Sums and differences of mirrored taps, for one vector: those of parity (y, x) go to folded[2 y + x]. */
INLINE void fold(const int64_t k, const float *const *rows, const int64_t *columns, float *const *folded) {
  const int64_t half = k / 2, odd = k % 2, even_columns = half + odd;
  for (int64_t i = 0; i < half; i++) {
    const float *top = rows[i], *bottom = rows[k - 1 - i];
    for (int64_t j = 0; j < half; j++) {
      const int64_t left = columns[j], right = columns[k - 1 - j];
      const vec t = load(top + right), u = load(top + left), b = load(bottom + right), c = load(bottom + left);
      const vec top_sum = t + u, top_rest = t - u, bottom_sum = b + c, bottom_rest = b - c;
      store(folded[0] + (i * even_columns + j) * CHUNK, bottom_sum + top_sum);
      store(folded[1] + (i * half + j) * CHUNK, bottom_rest + top_rest);
      store(folded[2] + (i * even_columns + j) * CHUNK, bottom_sum - top_sum);
      store(folded[3] + (i * half + j) * CHUNK, bottom_rest - top_rest);
    }
    if (odd) {
      const vec t = load(top + columns[half]), b = load(bottom + columns[half]);
      store(folded[0] + (i * even_columns + half) * CHUNK, b + t);
      store(folded[2] + (i * even_columns + half) * CHUNK, b - t);
    }
  }
  if (odd) {
    const float *middle = rows[half];
    for (int64_t j = 0; j < half; j++) {
      const vec r = load(middle + columns[k - 1 - j]), l = load(middle + columns[j]);
      store(folded[0] + (half * even_columns + j) * CHUNK, r + l);
      store(folded[1] + (half * half + j) * CHUNK, r - l);
    }
    store(folded[0] + (half * even_columns + half) * CHUNK, load(middle + columns[half]));
  }
}

enum { MOST_TAPS = BESSEL_MOST_TAPS };

static void analyse(const part *s) {
  const bessel_call *call = s->call;
  const bessel_layer *layer = s->layer;
  const int64_t k = layer->kernel_size, channels = layer->in_channels, length = s->columns * channels;
  int64_t columns[MOST_TAPS];
  const float *rows[MOST_TAPS];
  for (int64_t i = 0; i < k; i++) columns[i] = tap_place(call, i);
  float *folded[4] = {s->folded};
  for (int n = 1; n < 4; n++)
    folded[n] = folded[n - 1] + call->parities[n - 1].rows * call->parities[n - 1].columns * CHUNK;
  for (int64_t r = 0; r < s->rows; r++)
    for (int64_t start = 0; start < length; start += CHUNK) {
      const int64_t vectors = smaller((length - start + LANES - 1) / LANES, CHUNK / LANES);
      const int64_t top = bessel_first_row(layer, s->y + r);
      for (int64_t i = 0; i < k; i++)
        rows[i] = s->ring + (top + i * layer->dilation[0]) % call->ring * call->row_pitch + s->x * channels + start;
      for (int64_t v = 0; v < vectors; v++) {
        float *const targets[4] = {folded[0] + v * LANES, folded[1] + v * LANES, folded[2] + v * LANES,
                                   folded[3] + v * LANES};
        const float *shifted[MOST_TAPS];
        for (int64_t i = 0; i < k; i++) shifted[i] = rows[i] + v * LANES;
        switch (k) {
          case 3: fold(3, shifted, columns, targets); break;
          case 5: fold(5, shifted, columns, targets); break;
          case 7: fold(7, shifted, columns, targets); break;
          case 9: fold(9, shifted, columns, targets); break;
          default: fold(k, shifted, columns, targets);
        }
      }
      for (int n = 0; n < 4; n++) {
        const bessel_parity *parity = &call->parities[n];
        const int64_t taps = parity->rows * parity->columns;
        if (parity->count)
          multiply((product){.a = parity->taps, .a_row = taps, .a_inner = 1, .b = folded[n], .b_row = CHUNK,
                             .c = s->phi + parity->first * call->plane_pitch + r * length + start,
                             .c_row = call->plane_pitch, .outer = 1, .inner = taps},
                   parity->count, vectors);
      }
    }
  if (layer->mirror) return;
  for (int64_t v = 1; v < layer->num_orders; v++) {
    const bessel_order *order = &call->orders[v];
    for (int64_t j = 0; j < order->count; j++) {
      const float *cosine = s->phi + (order->cosine + j) * call->plane_pitch;
      const float *sine = s->phi + (order->sine + j) * call->plane_pitch;
      float *sum = s->phi + (order->sum + j) * call->plane_pitch;
      for (int64_t i = 0; i < s->pixels * channels; i += LANES) store(sum + i, load(cosine + i) + load(sine + i));
    }
  }
}

/* phi from plane `first` on times a packed matrix. */
static void mix_one(const part *s, const bessel_order *order, int64_t first, int64_t matrix, int64_t vectors, float *to,
                    int64_t to_row) {
  const bessel_call *call = s->call;
  const int64_t channels = s->layer->in_channels, rows = order->count * channels;
  const float *weights = call->packed + (s->group * call->packed_rows + order->packed + matrix * rows) * call->out_pitch;
  multiply((product){.a = s->phi + first * call->plane_pitch, .a_row = channels, .a_outer = call->plane_pitch,
                     .a_inner = 1, .b = weights, .b_row = vectors * LANES, .c = to, .c_row = to_row,
                     .outer = order->count, .inner = channels},
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
            power[pixel * call->out_pitch + o] += both[0] * both[0] + both[call->out_pitch] * both[call->out_pitch];
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
                call->output + s->image * at.image + s->group * channels * at.channel + (s->y + r) * at.row + s->x * at.pixel,
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
                call->gradient + s->image * at.image + s->group * channels * at.channel + (s->y + r) * at.row + s->x * at.pixel,
                at.pixel, at.channel);
  for (int64_t pixel = 0; pixel < s->pixels; pixel++)
    for (int64_t o = 0; o < pitch; o++) bias[o] += gradient[pixel * pitch + o];
  for (int64_t i = 0; i < size; i++)
    power[i] = layer->response == BESSEL_POWER ? 2 * gradient[i]
                                               : gradient[i] / __builtin_sqrtf(power[i] < FLT_MIN ? FLT_MIN : power[i]);
}

/* Gradient of a packed matrix: phi from plane `first` on, transposed, times the gradient of its maps. */
static void pull_to_weight(const part *s, const bessel_order *order, int64_t first, int64_t matrix, int64_t vectors,
                           const float *slopes) {
  const bessel_call *call = s->call;
  const int64_t channels = s->layer->in_channels, rows = order->count * channels, columns = vectors * LANES;
  float *target =
      s->remains.weight + (s->group * call->packed_rows + order->packed + matrix * rows) * call->out_pitch;
  for (int64_t j = 0; j < order->count; j++)
    multiply((product){.a = s->phi + (first + j) * call->plane_pitch, .a_row = 1, .a_inner = channels, .b = slopes,
                       .b_row = columns, .c = target + j * channels * columns, .c_row = columns, .outer = 1,
                       .inner = s->pixels, .add = 1},
             channels, vectors);
}

/* Gradients of maps, `terms` side by side, times a transposed matrix: (pixel, radial function, channel). */
static void pull_to_phi(const part *s, const bessel_order *order, int64_t matrix, int64_t terms, const float *slopes,
                        float *to) {
  const bessel_call *call = s->call;
  const bessel_layer *layer = s->layer;
  const int64_t columns = bessel_round_up(order->count * layer->in_channels, LANES);
  const float *weights = call->transposed + s->group * call->transposed_size + order->transposed +
                         matrix * layer->out_channels * columns;
  multiply((product){.a = slopes, .a_row = terms * call->out_pitch, .a_outer = call->out_pitch, .a_inner = 1,
                     .b = weights, .b_row = columns, .c = to, .c_row = columns, .outer = terms,
                     .inner = layer->out_channels},
           s->pixels, columns / LANES);
}

/* (pixel, radial function, channel), `less` taken away if given, into the planes of phi from `first` on. */
static void spread(const part *s, const bessel_order *order, const float *from, const float *less, int64_t first) {
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

/* The transpose of `fold`, for row i of the folded taps and one vector: what it adds at each column of two rows. */
INLINE void unfold(const int64_t k, int both_rows, const float *const *folded, float *top, float *bottom, int64_t length) {
  const int64_t half = k / 2, odd = k % 2;
  const vec zero = {0};
  for (int64_t j = 0; j < half + odd; j++) {
    const vec even = load(folded[0] + j * CHUNK), below = both_rows ? load(folded[2] + j * CHUNK) : zero;
    const vec top_even = even - below, bottom_even = even + below;
    if (j == half) {
      store(top + j * length, top_even);
      if (both_rows) store(bottom + j * length, bottom_even);
      continue;
    }
    const vec right = load(folded[1] + j * CHUNK), corner = both_rows ? load(folded[3] + j * CHUNK) : zero;
    const vec top_odd = right - corner, bottom_odd = right + corner;
    store(top + j * length, top_even - top_odd);
    store(top + (k - 1 - j) * length, top_even + top_odd);
    if (!both_rows) continue;
    store(bottom + j * length, bottom_even - bottom_odd);
    store(bottom + (k - 1 - j) * length, bottom_even + bottom_odd);
  }
}

/* Add what each tap column has to the row of the input's gradient that it came from. */
static void add_shifted(const part *s, const float *shifted, int64_t padded_row) {
  const bessel_call *call = s->call;
  const bessel_layer *layer = s->layer;
  const int64_t k = layer->kernel_size, channels = layer->in_channels, step = layer->stride[1];
  float *row = s->ring_gradient + padded_row % call->ring * call->row_pitch + s->x * channels;
  for (int64_t phase = 0; phase < smaller(step, (k - 1) * layer->dilation[1] + 1); phase++) {
    const float *sources[MOST_TAPS];
    int64_t count = 0, least = INT64_MAX, most = 0;
    for (int64_t i = 0; i < k; i++) {
      const int64_t at = i * layer->dilation[1];
      if (at % step != phase) continue;
      const int64_t shift = at / step * channels;
      sources[count++] = shifted + i * s->shifted_length + s->margin - shift;
      least = smaller(least, shift);
      most = larger(most, shift);
    }
    if (!count) continue;
    float *target = row + phase * call->phase_width * channels;
    for (int64_t i = least; i < most + s->columns * channels; i += LANES) {
      vec sum = load(target + i);
      for (int64_t n = 0; n < count; n++) sum += load(sources[n] + i);
      store(target + i, sum);
    }
  }
}

/* The transpose of `analyse`: the gradient of phi to that of the input rows. */
static void synthesise(part *s) {
  const bessel_call *call = s->call;
  const bessel_layer *layer = s->layer;
  const int64_t k = layer->kernel_size, half = k / 2, odd = k % 2, length = s->columns * layer->in_channels;
  float *top = s->shifted, *bottom = top + k * s->shifted_length;
  if (s->shifted_columns != s->columns) {
    memset(s->shifted, 0, (size_t)(2 * k * s->shifted_length) * sizeof(float));
    s->shifted_columns = s->columns;
  }
  for (int64_t r = 0; r < s->rows; r++)
    for (int64_t i = 0; i < half + odd; i++) {
      const int both_rows = i < half;
      for (int64_t start = 0; start < length; start += CHUNK) {
        const int64_t rest = length - start, vectors = smaller((rest + LANES - 1) / LANES, CHUNK / LANES);
        const float *planes = s->phi + r * length + start;
        int64_t pitch = call->plane_pitch;
        if (rest < vectors * LANES) {
          /* The next row begins in the last vector. */
          if (i == 0)
            for (int64_t f = 0; f < call->num_filters; f++)
              for (int64_t n = 0; n < vectors * LANES; n++)
                s->tail[f * CHUNK + n] = n < rest ? planes[f * pitch + n] : 0;
          planes = s->tail;
          pitch = CHUNK;
        }
        float *folded[4];
        for (int n = 0; n < 4; n++) {
          const bessel_parity *parity = &call->parities[n];
          folded[n] = s->folded + n * (half + odd) * CHUNK;
          if (n >= 2 && !both_rows) continue;
          if (parity->count)
            multiply((product){.a = parity->taps + i * parity->columns, .a_row = 1,
                               .a_inner = parity->rows * parity->columns, .b = planes + parity->first * pitch,
                               .b_row = pitch, .c = folded[n], .c_row = CHUNK, .outer = 1, .inner = parity->count},
                     parity->columns, vectors);
          else
            memset(folded[n], 0, (size_t)(parity->columns * CHUNK) * sizeof(float));
        }
        for (int64_t v = 0; v < vectors; v++) {
          const float *const sources[4] = {folded[0] + v * LANES, folded[1] + v * LANES, folded[2] + v * LANES,
                                           folded[3] + v * LANES};
          const int64_t at = s->margin + start + v * LANES;
          switch (k) {
            case 3: unfold(3, both_rows, sources, top + at, bottom + at, s->shifted_length); break;
            case 5: unfold(5, both_rows, sources, top + at, bottom + at, s->shifted_length); break;
            case 7: unfold(7, both_rows, sources, top + at, bottom + at, s->shifted_length); break;
            case 9: unfold(9, both_rows, sources, top + at, bottom + at, s->shifted_length); break;
            default: unfold(k, both_rows, sources, top + at, bottom + at, s->shifted_length);
          }
        }
      }
      const int64_t first = bessel_first_row(layer, s->y + r);
      add_shifted(s, top, first + i * layer->dilation[0]);
      if (both_rows) add_shifted(s, bottom, first + (k - 1 - i) * layer->dilation[0]);
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
  const int64_t stop = end == layer->out_height ? layer->height + layer->padding[0] : bessel_last_row(layer, end - 1);
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

const bessel_kernel BESSEL_KERNEL = {BESSEL_NAME, LANES, CHUNK, part_bytes, run, remains};

/* What the library prepares for a call, and what one instruction set does with it. */
#ifndef BESSELNET_KERNEL_H
#define BESSELNET_KERNEL_H

#include <stddef.h>

#include "besselnet.h"

/* Filters that are analysed together. All are even or all odd in y; some even, some odd in x.

   With their mirrored taps added, filters have h = (k + 1) / 2 rows (odd in y: k / 2) and columns (odd in x:
   k / 2) of taps. They stand row by row and column by column, first of all even filters, then of all odd. */
typedef struct {
  int64_t odd_rows;
  int64_t even_plane, num_even, odd_plane, num_odd; /* planes of phi */
  const float *taps;
  int64_t taps_per_row;
} bessel_pass;

/* One angular order: where its coefficients, maps and weights lie. */
typedef struct {
  int64_t count;             /* radial functions */
  int64_t weight;            /* its first weight among the F of a pair of channels */
  int64_t cosine, sine, sum; /* first planes of phi; sum: cosine + sine, for SO(2) */
  int64_t map;               /* its first map */
  int64_t packed;            /* its first row of the packed weights */
  int64_t transposed;        /* its first float of the transposed weights */
} bessel_order;

/* A call, prepared: what all its parts read. */
typedef struct {
  const bessel_layer *layer;
  const void *input;
  const float *bias, *gradient;
  float *output;
  void *to_input;
  int backward;
  int64_t num_filters, num_planes, num_maps; /* planes: filters and sums */
  int64_t num_passes;
  const bessel_pass *passes; /* even in y first */
  bessel_order *orders;
  int64_t out_pitch;               /* out_channels in whole vectors */
  int64_t packed_rows;             /* rows of out_pitch floats, for one group */
  const float *packed;             /* (groups, packed_rows, out_pitch) */
  int64_t transposed_size;         /* floats, for one group */
  const float *transposed;         /* (groups, transposed_size) */
  int64_t tile_rows, tile_columns; /* output pixels that go through together */
  int64_t ring;                    /* input rows held at a time */
  int64_t phase_width, row_pitch;  /* pixels of one phase of a strided row; floats of a whole row */
  int64_t plane_pitch;
  int64_t head_rows; /* input rows that a part shares with the one before, at most */
  int64_t parts;
  size_t part_bytes;
  char *memory; /* (parts, part_bytes) */
} bessel_call;

/* What a part leaves for the caller to add up. */
typedef struct {
  float *weight; /* (groups, packed_rows, out_pitch) */
  float *bias;   /* (groups, out_pitch) */
  float *head;   /* (groups, head_rows, width, in_channels): its share of rows that two parts add to */
} bessel_remains;

typedef struct {
  const char *name;
  int lanes;        /* floats in a vector */
  int overrun;      /* floats that may be read or written after the end of a row */
  int most_filters; /* of a parity in x, in one pass of the analysis */
  size_t (*part_bytes)(const bessel_call *call);
  void (*run)(const bessel_call *call, int64_t part);
  bessel_remains (*remains)(const bessel_call *call, int64_t part);
} bessel_kernel;

/* The output rows of a part, counted through the batch. */
static inline void bessel_part_rows(const bessel_call *call, int64_t part, int64_t *first, int64_t *last) {
  const int64_t rows = call->layer->batch * call->layer->out_height;
  *first = rows * part / call->parts;
  *last = rows * (part + 1) / call->parts;
}

/* Input rows, counted from the top of the padding, that output row y reads first and does not read any more. */
static inline int64_t bessel_first_row(const bessel_layer *layer, int64_t y) { return y * layer->stride[0]; }
static inline int64_t bessel_last_row(const bessel_layer *layer, int64_t y) {
  return y * layer->stride[0] + (layer->kernel_size - 1) * layer->dilation[0] + 1;
}

static inline int64_t bessel_round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

#endif

/* Preparation of a call, its threads, and the choice of the instruction set. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernel.h"

/* What a tile may need: about the second-level cache of common processors. */
enum { TILE_BYTES = 960 * 1024, MOST_PIXELS = 96, FEWEST_PIXELS = 12 };

#if defined(__x86_64__)
extern const bessel_kernel bessel_avx512, bessel_avx2, bessel_baseline;
static const bessel_kernel *const kernels[] = {&bessel_avx512, &bessel_avx2, &bessel_baseline};
static int runs(int i) {
  __builtin_cpu_init();
  if (i == 0)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  return i > 1 || (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
}
#elif defined(__aarch64__)
extern const bessel_kernel bessel_neon;
static const bessel_kernel *const kernels[] = {&bessel_neon};
static int runs(int i) { return i == 0; }
#else
extern const bessel_kernel bessel_baseline;
static const bessel_kernel *const kernels[] = {&bessel_baseline};
static int runs(int i) { return i == 0; }
#endif
enum { NUM_KERNELS = sizeof kernels / sizeof *kernels };

static const bessel_kernel *_Atomic chosen;

int bessel_api_version(void) { return BESSEL_API; }

const char *bessel_available(void) {
  static char names[64];
  char found[64] = "";
  for (int i = 0; i < NUM_KERNELS; i++)
    if (runs(i)) strcat(strcat(found, *found ? " " : ""), kernels[i]->name);
  memcpy(names, found, sizeof names);
  return names;
}

int bessel_select(const char *name) {
  for (int i = 0; i < NUM_KERNELS; i++)
    if (runs(i) && !strcmp(kernels[i]->name, name)) {
      chosen = kernels[i];
      return 1;
    }
  return 0;
}

static const bessel_kernel *selected(void) {
  const bessel_kernel *kernel = chosen;
  for (int i = 0; !kernel && i < NUM_KERNELS; i++)
    if (runs(i)) kernel = kernels[i];
  return kernel;
}

/* Threads. Parts are numbered and each writes to its own memory: who runs which makes no difference. */
typedef struct {
  void (*run)(const bessel_call *, int64_t);
  const bessel_call *call;
  atomic_llong next;
} job;

static void *work(void *argument) {
  job *shared = argument;
  for (int64_t part; (part = atomic_fetch_add(&shared->next, 1)) < shared->call->parts;)
    shared->run(shared->call, part);
  return NULL;
}

static void work_for_openmp(void *argument) { work(argument); }

typedef void gomp_parallel_function(void (*)(void *), void *, unsigned, unsigned);
static gomp_parallel_function *_Atomic gomp_parallel;
static pid_t gomp_process;

void bessel_use_openmp(void *function) {
  gomp_process = getpid();
  gomp_parallel = (gomp_parallel_function *)function;
}

static void run_parts(const bessel_kernel *kernel, const bessel_call *call) {
  job shared = {.run = kernel->run, .call = call, .next = 0};
  gomp_parallel_function *parallel = gomp_parallel;
  if (call->parts == 1) {
    work(&shared);
  } else if (parallel && getpid() == gomp_process) {
    parallel(work_for_openmp, &shared, (unsigned)call->parts, 0);
  } else {
    /* No OpenMP, or a forked process, in which its threads do not exist. */
    pthread_t threads[64];
    int64_t started = 0;
    while (started < call->parts - 1 && started < 64 &&
           !pthread_create(&threads[started], NULL, work, &shared))
      started++;
    work(&shared);
    while (started > 0) pthread_join(threads[--started], NULL);
  }
}

/* Memory of a call, taken in one piece and kept by the thread for its next call. */
static pthread_key_t memory_key;
static pthread_once_t memory_once = PTHREAD_ONCE_INIT;
typedef struct {
  size_t size;
  char *bytes;
} store;

static void free_store(void *kept) {
  free(((store *)kept)->bytes);
  free(kept);
}
static void make_key(void) { pthread_key_create(&memory_key, free_store); }

static char *take_memory(size_t size) {
  pthread_once(&memory_once, make_key);
  store *kept = pthread_getspecific(memory_key);
  if (!kept) {
    kept = calloc(1, sizeof *kept);
    if (!kept || pthread_setspecific(memory_key, kept)) {
      free(kept);
      return NULL;
    }
  }
  if (kept->size < size) {
    free(kept->bytes);
    kept->size = 0;
    kept->bytes = NULL;
    if (posix_memalign((void **)&kept->bytes, 4096, size)) {
      kept->bytes = NULL;
      return NULL;
    }
    kept->size = size;
  }
  return kept->bytes;
}

/* The filters of one parity in y and x: neighbouring planes of phi. */
typedef struct {
  int64_t first, count;
} planes;

/* Planes of phi stand parity by parity (2 * (odd in y) + (odd in x)), in each order by order; then the sums. */
static void plan_orders(bessel_call *call, planes *parities) {
  const bessel_layer *layer = call->layer;
  bessel_order *orders = call->orders;
  for (int64_t v = 0; v < layer->num_orders; v++) {
    orders[v] =
        (bessel_order){.count = layer->radial_counts[v], .weight = call->num_filters, .map = call->num_maps};
    call->num_filters += (v ? 2 : 1) * orders[v].count;
    call->num_maps += v ? (layer->mirror ? 4 : 2) : 1;
  }
  for (int n = 0; n < 4; n++) {
    const int odd_y = n / 2, odd_x = n % 2;
    parities[n].first = call->num_planes;
    for (int64_t v = odd_y; v < layer->num_orders; v++) {
      /* cos(v theta) is even in y, sin(v theta) odd; in x the one is as v is, the other as v is not. */
      if ((v % 2 == 1) != (odd_x != odd_y)) continue;
      *(odd_y ? &orders[v].sine : &orders[v].cosine) = call->num_planes;
      call->num_planes += orders[v].count;
    }
    parities[n].count = call->num_planes - parities[n].first;
  }
  for (int64_t v = 1; v < layer->num_orders && !layer->mirror; v++) {
    orders[v].sum = call->num_planes;
    call->num_planes += orders[v].count;
  }
}

/* The filter of each plane; 0 if one is not even or odd as its order says. */
static int find_filters(const bessel_call *call, const float *bank, const float **filters) {
  const int64_t k = call->layer->kernel_size;
  float largest = 0;
  for (int64_t i = 0; i < call->num_filters * k * k; i++) largest = fmaxf(largest, fabsf(bank[i]));
  for (int64_t v = 0; v < call->layer->num_orders; v++)
    for (int is_sine = 0; is_sine < (v ? 2 : 1); is_sine++)
      for (int64_t j = 0; j < call->orders[v].count; j++) {
        const bessel_order *order = &call->orders[v];
        const float *filter = bank + (order->weight + is_sine * order->count + j) * k * k;
        const float across = (v % 2 == 1) != is_sine ? -1 : 1, below = is_sine ? -1 : 1;
        filters[(is_sine ? order->sine : order->cosine) + j] = filter;
        for (int64_t y = 0; y < k; y++)
          for (int64_t x = 0; x < k; x++) {
            const float tap = filter[y * k + x];
            if (!(fabsf(tap - across * filter[y * k + k - 1 - x]) <= 1e-5f * largest &&
                  fabsf(tap - below * filter[(k - 1 - y) * k + x]) <= 1e-5f * largest))
              return 0;
          }
      }
  return 1;
}

/* Share the filters among passes of at most `most` of each parity; `taps` gets the lower right quadrants. */
static void plan_passes(bessel_call *call, const planes *parities, const float *const *filters, int64_t most,
                        bessel_pass *passes, float *taps) {
  const int64_t k = call->layer->kernel_size, half = k / 2;
  for (int odd_y = 0; odd_y < 2; odd_y++) {
    const planes even = parities[2 * odd_y], odd = parities[2 * odd_y + 1];
    const int64_t larger = even.count > odd.count ? even.count : odd.count,
                  count = (larger + most - 1) / most;
    for (int64_t n = 0; n < count; n++) {
      const int64_t first_even = even.count * n / count, first_odd = odd.count * n / count;
      bessel_pass *pass = &passes[call->num_passes++];
      *pass = (bessel_pass){.odd_rows = odd_y,
                            .even_plane = even.first + first_even,
                            .num_even = even.count * (n + 1) / count - first_even,
                            .odd_plane = odd.first + first_odd,
                            .num_odd = odd.count * (n + 1) / count - first_odd,
                            .taps = taps};
      pass->taps_per_row = half * (pass->num_even + pass->num_odd) + k % 2 * pass->num_even;
      for (int64_t y = 0; y < half + (k % 2 && !odd_y); y++)
        for (int64_t x = 0; x < half + k % 2; x++) {
          const int64_t place = (k - 1 - y) * k + k - 1 - x;
          for (int64_t f = 0; f < pass->num_even; f++) *taps++ = filters[pass->even_plane + f][place];
          for (int64_t f = 0; x < half && f < pass->num_odd; f++)
            *taps++ = filters[pass->odd_plane + f][place];
        }
    }
  }
}

/* Where the matrices of each order start: one for order 0, (p, p - q, p + q) for SO(2), (p | q) for O(2). */
static void plan_matrices(bessel_call *call, int lanes) {
  const bessel_layer *layer = call->layer;
  for (int64_t v = 0; v < layer->num_orders; v++) {
    bessel_order *order = &call->orders[v];
    const int64_t rows = order->count * layer->in_channels, matrices = v ? (layer->mirror ? 2 : 3) : 1;
    order->packed = call->packed_rows;
    order->transposed = call->transposed_size;
    call->packed_rows += matrices * rows;
    call->transposed_size += matrices * layer->out_channels * bessel_round_up(rows, lanes);
  }
}

/* Weights (O, C, F) as the matrices of the mixing, with output channels in rows of vectors, and transposed. */
static void pack_weights(const bessel_call *call, const float *weight, int lanes, float *packed,
                         float *transposed) {
  const bessel_layer *layer = call->layer;
  const int64_t channels = layer->in_channels, outs = layer->out_channels, pitch = call->out_pitch;
  for (int64_t v = 0; v < layer->num_orders; v++) {
    const bessel_order *order = &call->orders[v];
    const int64_t rows = order->count * channels, columns = bessel_round_up(rows, lanes),
                  mirror = layer->mirror && v;
    float *matrix = packed + order->packed * pitch, *turned = transposed + order->transposed;
    for (int64_t o = 0; o < outs; o++)
      for (int64_t c = 0; c < channels; c++) {
        const float *first = weight + (o * channels + c) * call->num_filters + order->weight;
        for (int64_t j = 0; j < order->count; j++) {
          const float p = first[j], q = v ? first[order->count + j] : 0;
          const float entries[3] = {p, mirror ? q : p - q, p + q};
          const int64_t row = j * channels + c;
          for (int64_t n = 0; n < (v ? (mirror ? 2 : 3) : 1); n++) {
            matrix[mirror ? (2 * row + n) * pitch + o : (n * rows + row) * pitch + o] = entries[n];
            if (call->backward) turned[(n * outs + o) * columns + row] = entries[n];
          }
        }
      }
  }
}

/* The transpose of pack_weights: gradients of the matrices to that of the weights. */
static void unpack_gradient(const bessel_call *call, const float *packed, float *to_weight) {
  const bessel_layer *layer = call->layer;
  const int64_t channels = layer->in_channels, pitch = call->out_pitch;
  for (int64_t v = 0; v < layer->num_orders; v++) {
    const bessel_order *order = &call->orders[v];
    const int64_t rows = order->count * channels;
    const float *matrix = packed + order->packed * pitch;
    for (int64_t o = 0; o < layer->out_channels; o++)
      for (int64_t c = 0; c < channels; c++) {
        float *first = to_weight + (o * channels + c) * call->num_filters + order->weight;
        for (int64_t j = 0; j < order->count; j++) {
          const int64_t row = j * channels + c;
          if (v && layer->mirror) {
            first[j] = matrix[2 * row * pitch + o];
            first[order->count + j] = matrix[(2 * row + 1) * pitch + o];
            continue;
          }
          const float shared = matrix[row * pitch + o];
          first[j] = v ? shared - matrix[(rows + row) * pitch + o] : shared;
          if (v) first[order->count + j] = shared - matrix[(2 * rows + row) * pitch + o];
        }
      }
  }
}

/* Tiles of whole rows, or of parts of one row, that fit into the cache. */
static void plan_tiles(bessel_call *call, const bessel_kernel *kernel) {
  const bessel_layer *layer = call->layer;
  int64_t widest = 0;
  for (int64_t v = 0; v < layer->num_orders; v++)
    if (call->orders[v].count > widest) widest = call->orders[v].count;
  int64_t floats = call->num_planes * layer->in_channels + 5 * call->out_pitch;
  if (call->backward) floats += (call->num_maps + 3) * call->out_pitch + 3 * widest * layer->in_channels;
  int64_t pixels = TILE_BYTES / (4 * floats);
  if (pixels > MOST_PIXELS) pixels = MOST_PIXELS;
  if (pixels < FEWEST_PIXELS) pixels = FEWEST_PIXELS;
  const int64_t width = layer->out_width, pieces = (width + pixels - 1) / pixels;
  call->tile_columns = (width + pieces - 1) / pieces;
  call->tile_rows = pieces > 1 ? 1 : pixels / width;
  if (call->tile_rows > layer->out_height) call->tile_rows = layer->out_height;
  const int64_t span = (layer->kernel_size - 1) * layer->dilation[0] + 1, step = layer->stride[1];
  call->ring = (call->tile_rows - 1) * layer->stride[0] + span;
  const int64_t padded = layer->width + 2 * layer->padding[1];
  call->phase_width = (padded + step - 1) / step + (layer->kernel_size - 1) * layer->dilation[1] / step + 1;
  call->row_pitch = bessel_round_up(step * call->phase_width * layer->in_channels + 2 * kernel->overrun, 16);
  call->plane_pitch =
      bessel_round_up(call->tile_rows * call->tile_columns * layer->in_channels + kernel->overrun, 16) + 16;
  call->head_rows = span > layer->stride[0] ? span - layer->stride[0] : 0;
}

/* Add a part's share of the rows that the part before it has written. */
static void add_head(const bessel_call *call, int64_t part, const float *head) {
  const bessel_layer *layer = call->layer;
  const bessel_strides at = layer->to_input;
  int64_t row, last;
  bessel_part_rows(call, part, &row, &last);
  const int64_t y = row % layer->out_height, image = row / layer->out_height;
  if (row == last || y == 0) return;
  const int64_t first = bessel_first_row(layer, y);
  for (int64_t padded = first; padded < bessel_last_row(layer, y - 1); padded++) {
    const int64_t r = padded - layer->padding[0];
    if (r < 0 || r >= layer->height) continue;
    for (int64_t g = 0; g < layer->groups; g++)
      for (int64_t x = 0; x < layer->width; x++)
        for (int64_t c = 0; c < layer->in_channels; c++) {
          const int64_t to =
              image * at.image + (g * layer->in_channels + c) * at.channel + r * at.row + x * at.pixel;
          const float share =
              head[((g * call->head_rows + padded - first) * layer->width + x) * layer->in_channels + c];
          if (!layer->bfloat16) {
            ((float *)call->to_input)[to] += share;
            continue;
          }
          uint16_t *place = (uint16_t *)call->to_input + to;
          uint32_t bits = (uint32_t)*place << 16;
          float value;
          memcpy(&value, &bits, 4);
          value += share;
          memcpy(&bits, &value, 4);
          *place = (uint16_t)((isnan(value) ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1)) >> 16);
        }
  }
}

static int prepare_and_run(bessel_call *call, const float *weight, const float *bank, float *to_weight,
                           float *to_bias, int threads) {
  const bessel_layer *layer = call->layer;
  const bessel_kernel *kernel = selected();
  const int64_t quadrant = (layer->kernel_size + 1) / 2 * ((layer->kernel_size + 1) / 2);
  int status = BESSEL_NO_MEMORY;
  int64_t most_filters = 0;
  for (int64_t v = 0; v < layer->num_orders; v++) most_filters += 2 * layer->radial_counts[v];
  planes parities[4];
  bessel_order *orders = calloc((size_t)layer->num_orders, sizeof *orders);
  bessel_pass *passes = calloc((size_t)most_filters, sizeof *passes);
  const float **filters = calloc((size_t)most_filters, sizeof *filters);
  float *taps = calloc((size_t)(most_filters * quadrant), sizeof *taps);
  if (!orders || !passes || !filters || !taps) goto done;
  call->orders = orders;
  call->passes = passes;
  plan_orders(call, parities);
  if (!find_filters(call, bank, filters)) {
    status = BESSEL_NO_PARITY;
    goto done;
  }
  plan_passes(call, parities, filters, kernel->most_filters, passes, taps);
  call->out_pitch = bessel_round_up(layer->out_channels, kernel->lanes);
  plan_matrices(call, kernel->lanes);
  plan_tiles(call, kernel);
  const int64_t rows = layer->batch * layer->out_height;
  /* One part at least, so that gradients of no image are zero. */
  call->parts = threads > rows ? rows : threads;
  if (call->parts < 1) call->parts = 1;
  call->part_bytes = kernel->part_bytes(call);
  const size_t packed_bytes = (size_t)bessel_round_up(
      layer->groups * call->packed_rows * call->out_pitch * 4 + 4 * kernel->overrun, 4096);
  const size_t turned_bytes =
      call->backward
          ? (size_t)bessel_round_up(layer->groups * call->transposed_size * 4 + 4 * kernel->overrun, 4096)
          : 0;
  char *memory = take_memory(packed_bytes + turned_bytes + (size_t)call->parts * call->part_bytes);
  if (!memory) goto done;
  float *packed = (float *)memory, *transposed = (float *)(memory + packed_bytes);
  call->memory = memory + packed_bytes + turned_bytes;
  memset(memory, 0, packed_bytes + turned_bytes);
  call->packed = packed;
  call->transposed = transposed;
  const int64_t group_weights = layer->out_channels * layer->in_channels * call->num_filters;
  const int64_t group_packed = call->packed_rows * call->out_pitch;
  for (int64_t g = 0; g < layer->groups; g++)
    pack_weights(call, weight + g * group_weights, kernel->lanes, packed + g * group_packed,
                 transposed + g * call->transposed_size);
  run_parts(kernel, call);
  status = BESSEL_OK;
  if (!call->backward) goto done;
  bessel_remains total = kernel->remains(call, 0);
  for (int64_t part = 0; part < call->parts; part++) {
    const bessel_remains share = kernel->remains(call, part);
    if (call->to_input) add_head(call, part, share.head);
    if (part == 0) continue;
    for (int64_t i = 0; i < layer->groups * group_packed; i++) total.weight[i] += share.weight[i];
    for (int64_t i = 0; i < layer->groups * call->out_pitch; i++) total.bias[i] += share.bias[i];
  }
  for (int64_t g = 0; g < layer->groups; g++) {
    unpack_gradient(call, total.weight + g * group_packed, to_weight + g * group_weights);
    for (int64_t o = 0; to_bias && o < layer->out_channels; o++)
      to_bias[g * layer->out_channels + o] = total.bias[g * call->out_pitch + o];
  }
done:
  free(orders);
  free(passes);
  free(filters);
  free(taps);
  return status;
}

int bessel_forward(const bessel_layer *layer, const void *input, const float *weight, const float *bank,
                   const float *bias, float *output, int threads) {
  bessel_call call = {.layer = layer, .input = input, .bias = bias, .output = output};
  return prepare_and_run(&call, weight, bank, NULL, NULL, threads);
}

int bessel_backward(const bessel_layer *layer, const void *input, const float *weight, const float *bank,
                    const float *gradient, void *to_input, float *to_weight, float *to_bias, int threads) {
  bessel_call call = {
      .layer = layer, .input = input, .gradient = gradient, .to_input = to_input, .backward = 1};
  return prepare_and_run(&call, weight, bank, to_weight, to_bias, threads);
}

/* The fused Bessel convolution on the CPU: one layer's forward and backward pass.

   A plain C library: no Python, no torch. Tensors come as pointers with strides in elements. */
#ifndef BESSELNET_H
#define BESSELNET_H

#include <stdint.h>

#define BESSEL_PUBLIC __attribute__((visibility("default")))

enum { BESSEL_POWER, BESSEL_AMPLITUDE, BESSEL_SIGNED };
enum { BESSEL_OK, BESSEL_NO_MEMORY, BESSEL_NO_PARITY };

/* Strides of a tensor (N, C, H, W), in elements. */
typedef struct {
  int64_t image, channel, row, pixel;
} bessel_strides;

/* A layer and its images. Channels are counted per group. */
typedef struct {
  int64_t batch, height, width, out_height, out_width;
  int64_t in_channels, out_channels, groups;
  int64_t kernel_size, stride[2], padding[2], dilation[2];
  int64_t num_orders;
  const int64_t *radial_counts; /* (num_orders,): radial functions of each order */
  int64_t mirror;               /* O(2) instead of SO(2) */
  int64_t response;
  int64_t bfloat16; /* type of the input and of its gradient; all else is float */
  bessel_strides input, output, gradient, to_input; /* gradient: of the output */
} bessel_layer;

/* Response plus bias (may be NULL); weight (O, C, F), bank (F, k, k), both contiguous. */
BESSEL_PUBLIC int bessel_forward(const bessel_layer *layer, const void *input, const float *weight,
                                 const float *bank, const float *bias, float *output, int threads);

/* Gradients of the input (like the input, or NULL), of the weight and of the bias (or NULL). */
BESSEL_PUBLIC int bessel_backward(const bessel_layer *layer, const void *input, const float *weight,
                                  const float *bank, const float *gradient, void *to_input, float *to_weight,
                                  float *to_bias, int threads);

/* Grows with every change of what stands above. */
enum { BESSEL_API = 1 };
BESSEL_PUBLIC int bessel_api_version(void);

/* Names of the instruction sets that this library has and this processor can run, best first. */
BESSEL_PUBLIC const char *bessel_available(void);
/* Use one of them by name; 0 if it is not available. */
BESSEL_PUBLIC int bessel_select(const char *name);
/* Run on the threads of an OpenMP runtime that is loaded already: its GOMP_parallel. */
BESSEL_PUBLIC void bessel_use_openmp(void *gomp_parallel);

#endif

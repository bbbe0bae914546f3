/* SPDX-License-Identifier: Apache-2.0 */
/** \file
 * The kernels of deltaref from C: plain pointers, sizes and strides.
 *
 * One call computes, for every value head of every sequence, the recurrence
 * \f[ S_t = S_{t-1}\,\mathrm{diag}(\alpha_t), \quad \tilde e_t = v_t - S_t x_t, \quad
 *     S_t \mathrel{+}= \beta_t \tilde e_t k_t^\top, \quad o_t = \mathrm{scale}\; S_t q_t, \qquad
 *     x_t = c\,k_t + \lambda_t q_t \f]
 * with c = 0 for linear, retnet and mamba2 and c = 1 for delta, gated_delta, q_delta and kda.
 * S is [d_v x d_k]. All data pointers are device pointers, except `cu_seqlens`. Every function returns a status;
 * deltaref_gpu_last_error() has the sentence that belongs to it.
 */
#ifndef DELTAREF_GPU_H
#define DELTAREF_GPU_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  DELTAREF_OK = 0,
  DELTAREF_INVALID_ARGUMENT = 1, /**< the description of the problem is wrong; nothing was launched */
  DELTAREF_UNSUPPORTED = 2,      /**< the description is right, but no kernel (or not the one asked for) serves it */
  DELTAREF_NO_DEVICE = 3,        /**< no driver, no GPU, or a build without CUDA */
  DELTAREF_WORKSPACE = 4,        /**< the workspace is missing, too small or not aligned to 256 bytes */
  DELTAREF_CUDA_ERROR = 5        /**< the CUDA runtime reported an error */
} deltaref_status;

typedef enum {
  DELTAREF_LINEAR = 0,
  DELTAREF_RETNET = 1,
  DELTAREF_MAMBA2 = 2,
  DELTAREF_DELTA = 3,
  DELTAREF_GATED_DELTA = 4,
  DELTAREF_Q_DELTA = 5,
  DELTAREF_KDA = 6
} deltaref_rule;

/** Type of q, k, v and o. Gates, strengths, states and traces are fp64 with FP64 and fp32 with the others. */
typedef enum { DELTAREF_BF16 = 0, DELTAREF_FP16 = 1, DELTAREF_FP32 = 2, DELTAREF_FP64 = 3 } deltaref_dtype;

/** What `gate` holds: the natural logarithm of the decay, or the decay alpha itself. */
typedef enum { DELTAREF_LOG_DECAY = 0, DELTAREF_DECAY = 1 } deltaref_gate;

/** How a state is stored: [d_k, d_v] or [d_v, d_k], the last axis contiguous. */
typedef enum { DELTAREF_STATE_KV = 0, DELTAREF_STATE_VK = 1 } deltaref_state_layout;

/** The kernels, oldest first. AUTO: the newest one that serves the problem on this device. */
typedef enum {
  DELTAREF_AUTO = 0,
  DELTAREF_V1 = 1, /**< token by token */
  DELTAREF_V2 = 2, /**< the state in registers */
  DELTAREF_V3 = 3, /**< the chunk form as it is written, in shared memory */
  DELTAREF_V4 = 4, /**< the chunk form on tensor cores, in two stages */
  DELTAREF_V5 = 5, /**< the chunk form with Hopper's instructions, a head to a cluster of blocks */
  /** The same for few heads: a sequence in segments that are walked at the same time. Needs d_k = d_v; asked for by
   * name with segments = 0, it refuses where a cut does not pay. */
  DELTAREF_V6 = 6,
  /** The same for many heads: a multiprocessor to a head, which prepares chunks and carries S. Asked for by name, it
   * serves any number of heads; where the version is chosen, it is taken where that is faster than v5. */
  DELTAREF_V7 = 7,
  DELTAREF_NEWEST = DELTAREF_V7
} deltaref_version;

/** A tensor [B, T, heads, width]: the last axis is contiguous, the others have strides in elements (0 broadcasts).
 * A packed batch (`cu_seqlens`) has B = 1. data = NULL: not given, the neutral value holds. */
typedef struct {
  void* data;
  int64_t stride_b, stride_t, stride_h;
} deltaref_tensor;

/** Where kernels write what a formula names; any pointer may be NULL. Contiguous, in the type of the states.
 * Chunk arrays have one entry a chunk slot: chunk c of sequence n has slot begin(n) / C + n + c with begin(n) the
 * sequence's first token (n T without cu_seqlens); there are deltaref_gpu_plan_t.slots of them. */
typedef struct {
  void* e_prior;     /**< v1: [B, T, HV, d_v]       e~_t = v_t - S' x_t, before the write */
  void* e_posterior; /**< v1: [B, T, HV, d_v]       e_t = v_t - S_t x_t, after it */
  void* states;      /**< v1: [B, T, HV, d_v, d_k]  S_t */
  void* gamma;       /**< v3 to v7: [slots, HV, C]        gamma_i (scalar decay) */
  void* L_g;         /**< v3, v4: [slots, HV, C, C]   sl(B (H . X K^T));  v5 to v7: L = sl(H . X K^T) B */
  void* inverse;     /**< v3 to v7: [slots, HV, C, C]     A = (I + L_g)^{-1}, of either; v7: of each diagonal square of 32 */
  void* W;           /**< v3: [slots, HV, C, d_k]   W = (I + L)^{-1} B X;  v4: D_g W, which alone its inverse gives */
  void* U;           /**< v3, v4: [slots, HV, C, d_v]   U~ = (I + L_g)^{-1} B V */
  void* Z;           /**< v3, v4: [slots, HV, C, d_v]   Z = U~ - D_g W S^T;  v5 to v7: E, with Z = B E */
  void* S;           /**< v3 to v7: [slots, HV, d_v, d_k] the state at the chunk's end */
} deltaref_trace;

typedef struct {
  int32_t rule, dtype, gate, state_layout;
  int32_t version;             /**< deltaref_version. Changes bits, within rounding: where it is chosen, more sequences
                                  or heads may do so, or another device; one that is named fixes it */
  int32_t qk_l2norm;           /**< 1: q and k are divided by sqrt(|.|^2 + l2norm_eps) first */
  int32_t rows;                /**< rows of S a block owns; 0: chosen. v4: 16, 32, 64; v5, v6: 64, 128; v7: d_v.
                                  Changes no bit of a given version with given segments; where those are chosen, it
                                  has a say */
  int32_t segments;            /**< of a sequence; 0: chosen, which may be 1; 1: never cut; 2 to 64: v6, or UNSUPPORTED,
                                  with 4 d^2 (2 segments - 3) bytes of workspace a head and sequence, however short
                                  those are. Changes bits, within rounding: where it is chosen, more tokens, sequences
                                  or heads, other rows or another device may do so; 1, or a number, fixes it, for a
                                  given version */
  int64_t B, T, H, HV;         /**< value head j uses key head j / (HV / H) */
  int64_t d_k, d_v;
  int64_t sequences;           /**< with cu_seqlens: their number N; else ignored, N = B */
  const int64_t* cu_seqlens;   /**< host pointer [N + 1], or NULL; tokens beyond the last offset are slack */
  double scale, l2norm_eps;
  deltaref_tensor q, k;        /**< [B, T, H, d_k] */
  deltaref_tensor v, o;        /**< [B, T, HV, d_v] */
  deltaref_tensor g;           /**< [B, T, HV], kda [B, T, HV, d_k]; NULL: no decay */
  deltaref_tensor beta;        /**< [B, T, HV]; NULL: 1 */
  deltaref_tensor lambda;      /**< [B, T, HV], q_delta only; NULL: 0 */
  const void* initial_state;   /**< [N, HV, ., .], or NULL: zero */
  void* final_state;           /**< [N, HV, ., .], or NULL: not wanted */
  deltaref_trace trace;
} deltaref_gpu_problem;

/** What a call will do. */
typedef struct {
  int32_t version;        /**< the kernel that runs */
  int32_t chunk;          /**< its chunk length C, 1 for the recurrent ones */
  int32_t rows;           /**< rows of S (value channels) of a block of its serial stage */
  int32_t stages;         /**< chunks its shared memory holds at a time (v7: of K and Q); 0 for v1 to v3 */
  int32_t chains;         /**< v5, v6: blocks that carry the S of a head; v7: 1; else 0 */
  int32_t producers;      /**< v5, v6: blocks that prepare a head's chunks, else 0 */
  int32_t clusters;       /**< v5, v6: clusters, which share the heads of all sequences; v7: blocks, likewise; else 0 */
  int32_t segments;       /**< v6: of a sequence, walked at the same time; v5, v7: 1; else 0 */
  int64_t slots;          /**< chunk slots of the trace and the workspace */
  uint64_t workspace;     /**< bytes of workspace it needs */
  char reason[240];       /**< why this version, and why not a newer one */
} deltaref_gpu_plan_t;

/** What the planner knows of a device. */
typedef struct {
  int32_t compute_capability; /**< 90 for 9.0 */
  int32_t multiprocessors;
  int64_t shared_memory;      /**< bytes a block may have, opt-in */
} deltaref_gpu_device_t;

/** The current CUDA device, in numbers and as a sentence. `text` may be NULL. */
deltaref_status deltaref_gpu_device(deltaref_gpu_device_t* device, char* text, size_t size);

/** Checks the problem and says which kernel will run. Needs no GPU. */
deltaref_status deltaref_gpu_plan(const deltaref_gpu_problem* problem, const deltaref_gpu_device_t* device,
                                  deltaref_gpu_plan_t* plan);

/** Launches on `stream` (a cudaStream_t, NULL: the default stream) and returns without waiting.
 * \param workspace device memory, aligned to 256 bytes, that the call may overwrite; plan.workspace bytes are enough;
 *                  may be NULL if that is 0 */
deltaref_status deltaref_gpu_run(const deltaref_gpu_problem* problem, void* workspace, size_t size, void* stream);

/** The status as a phrase. */
const char* deltaref_gpu_status_text(deltaref_status status);

/** The sentence that belongs to the last status of this thread: what, expected, got, what to try. */
const char* deltaref_gpu_last_error(void);

/** Names as in the program: "q_delta", "v4 (the chunk form on tensor cores)". */
const char* deltaref_gpu_rule_name(int32_t rule);
const char* deltaref_gpu_version_name(int32_t version);

#ifdef __cplusplus
}
#endif
#endif

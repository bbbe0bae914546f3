// SPDX-License-Identifier: Apache-2.0
// v5: the chunk form with the instructions of Hopper; a head is a cluster of multiprocessors.
//
// Change      what the state does not enter is prepared on one multiprocessor and copied into the shared memory of
//             another, which carries S: no memory between the stages, and one launch. Solved beforehand, a chunk is
//             E = T V - W S^T, so that two waits for the tensor cores follow each other instead of three. 64 rows of S
//             are accumulators of a warpgroup from the first chunk to the last; rounded and packed in place they are
//             the left operand of the next product (wgmma), whose right one the copy engine (TMA) brought.
// Prediction  a chunk is 2050 cycles of the tensor cores for 128 rows, 1.2 us, on the chain's multiprocessor and 1020
//             on the producer's: 1.6 us with what cannot be hidden, so (1, 8192, 64) in 0.2 ms where v4 takes 0.65.
// Gained      on an H200 (1, 8192, 64) takes 0.26 ms, (8, 2048, 16) 0.15 where v4 takes 0.34, (1, 8192, 16) 0.15
//             where it takes 0.28. What cost most on the way was not arithmetic: instructions that neighbouring
//             multiprocessors, which run different programs, evict from a common cache; one lane's work between
//             branches; fences and arrivals wider than needed; and shared memory, which is in use three quarters of
//             the time on either side.
#include <algorithm>

#include "gpu/kernels/launch.hpp"
#include "gpu/kernels/v5_chain.cuh"
#include "gpu/kernels/v5_prepare.cuh"
#include "gpu/kernels/v6_scan.cuh"

namespace delta::gpu {
namespace {

/// One block is one multiprocessor's. The first blocks of a cluster carry S, in one or two warpgroups, with a warp that
/// fills the stages and one that acknowledges; the others prepare, in three teams with a clerk each.
template <class In, int D, bool Lambda, bool Trace>
__global__ void __launch_bounds__(512, 1)
    walk_heads(const Arguments a, const __grid_constant__ Maps maps, const Shape shape) {
  using Chain = ChainShared<D>;
  using Producer = TeamShared<D>;
  extern __shared__ __align__(1024) unsigned char memory[];
  const int rank = static_cast<int>(cluster_rank());
  const int warp = uniform(static_cast<int>(threadIdx.x) / 32), group = warp / 4;
  const unsigned cluster = blockIdx.x / static_cast<unsigned>(shape.chains + shape.producers);
  const std::uint32_t at = shared_address(memory);
  const bool prepares = rank >= shape.chains;
  if (threadIdx.x == 0) {
    if (prepares) {
      for (int team = 0; team < kV5Teams; ++team) {
        const std::uint32_t barriers = at + Producer::barriers(team);
        init_barrier(barriers + Producer::kLoaded, 32);
        init_barrier(barriers + Producer::kEmptied, 4);
        for (int b : {Producer::kDone, Producer::kReusable}) init_barrier(barriers + b, 1);
        for (int b : {Producer::kOpened, Producer::kRestOpened, Producer::kLanded})
          init_barrier(barriers + b, shape.chains);
      }
    } else {
      for (int i = 0; i < shape.depth; ++i) {
        init_barrier(at + Chain::kFull + 8 * i, 32);
        init_barrier(at + Chain::kSent + 8 * i, 1);
        init_barrier(at + Chain::kUsed + 8 * i, 4 * shape.warpgroups);
        init_barrier(at + Chain::kFree + 8 * i, 4 * shape.warpgroups + 1);
      }
      init_barrier(at + Chain::kTail, 1);
    }
    publish_barriers();
  }
  cluster_barrier();
  const int first = rank * 64 * shape.warpgroups;
  // 65536 registers: 128 (3 x 152 + 56) of a producer, 128 (2 x 216 + 2 x 40) of a chain.
  // The order of the branches is the order of the code, and with others it took up to 15 % longer: neighbouring
  // multiprocessors run different branches out of one cache of instructions.
  if (prepares && group < kV5Teams) {
    take_registers<152>();
    prepare_chunks<In, D, Lambda, Trace>(a, shape, memory, cluster, rank - shape.chains, group);
  } else if (!prepares && group > 0 && group <= shape.warpgroups) {
    take_registers<216>();
    carry_state<In, D, Trace>(a, shape, memory, cluster, group - 1, first + 64 * (group - 1));
  } else if (!prepares) {
    give_registers<40>();
    if (warp == 0)
      fill_stages<In, D>(a, maps, shape, memory, cluster, first);
    else if (warp == 1)
      acknowledge<D>(a, shape, memory, cluster);
  } else {
    give_registers<56>();
    const int team = warp % 4;
    if (team < kV5Teams) keep_supplied<D, Trace>(a, maps, shape, memory, cluster, rank - shape.chains, team);
  }
  cluster_barrier();  // no block leaves while another may still reach into its memory
}

// ---------------------------------------------------------------- launching

/// One walk: so many parts, shared by as many clusters as the plan allows.
template <class In, int D, bool Lambda, bool Trace>
cudaError_t walk(Pass pass, std::int64_t parts, const Arguments& a, const Maps& maps, const deltaref_gpu_plan_t& plan,
                 cudaStream_t stream) {
  const auto kernel = walk_heads<In, D, Lambda, Trace>;
  const Shape shape{.chains = plan.chains,
                    .producers = plan.producers,
                    .warpgroups = plan.rows / 64,
                    .depth = plan.stages,
                    .segments = static_cast<unsigned>(plan.segments),
                    .pass = pass,
                    .parts = static_cast<unsigned>(parts),
                    .clusters = static_cast<unsigned>(std::min<std::int64_t>(parts, plan.clusters))};
  cudaError_t error = allow_all_shared_memory(kernel);
  if (error != cudaSuccess) return error;
  const unsigned size = static_cast<unsigned>(shape.chains + shape.producers);
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = size, cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(shape.clusters * size), config.blockDim = dim3(512);
  config.dynamicSmemBytes =
      static_cast<std::size_t>(std::max(ChainShared<D>::bytes(shape.warpgroups, shape.depth), TeamShared<D>::kAll));
  config.stream = stream, config.attrs = &cluster, config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, a, maps, shape);
}

/// v5 is one walk; v6 is two, with the scan between them.
template <class In, int D, bool Lambda, bool Trace>
cudaError_t launch(const Arguments& a, const Maps& maps, const deltaref_gpu_plan_t& plan, cudaStream_t stream) {
  const std::int64_t pairs = a.N * a.HV;
  const auto segments = static_cast<unsigned>(plan.segments);
  const auto each = [&](Pass pass, std::int64_t parts) {
    return walk<In, D, Lambda, Trace>(pass, pairs * parts, a, maps, plan, stream);
  };
  if (segments == 1) return each(Pass::whole, 1);
  cudaError_t error = each(Pass::starts, matrices_of(segments));
  if (error == cudaSuccess && segments > 2) {
    find_starts<D><<<static_cast<unsigned>(pairs * (D / kScanRows)), kScanThreads, 0, stream>>>(
        static_cast<float*>(a.workspace), segments);
    error = cudaGetLastError();
  }
  return error == cudaSuccess ? each(Pass::replay, segments - 1) : error;
}

template <class In, int D>
cudaError_t launch(const Arguments& a, const Maps& maps, const deltaref_gpu_plan_t& plan, cudaStream_t stream) {
  if (a.trace.gamma || a.trace.L_g || a.trace.inverse || a.trace.Z || a.trace.S)
    return launch<In, D, true, true>(a, maps, plan, stream);
  return a.lambda.data ? launch<In, D, true, false>(a, maps, plan, stream)
                       : launch<In, D, false, false>(a, maps, plan, stream);
}

}  // namespace

cudaError_t launch_v5(const Arguments& a, deltaref_dtype dtype, const deltaref_gpu_plan_t& plan, cudaStream_t stream) {
  Maps maps{};
  if (const cudaError_t error = describe(maps, a, dtype, Fetch::tile); error != cudaSuccess) return error;
  if (dtype == DELTAREF_BF16)
    return a.d_k == 64 ? launch<__nv_bfloat16, 64>(a, maps, plan, stream)
                       : launch<__nv_bfloat16, 128>(a, maps, plan, stream);
  return a.d_k == 64 ? launch<__half, 64>(a, maps, plan, stream) : launch<__half, 128>(a, maps, plan, stream);
}

}  // namespace delta::gpu

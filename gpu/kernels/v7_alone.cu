// SPDX-License-Identifier: Apache-2.0
// v7: one multiprocessor a head. The chunk form of v5, solved for the errors on the way.
//
// Change      v5 prepares the inverse and W, so that the chain waits twice a chunk; that is more than half of what is
//             prepared, and it takes a second multiprocessor. Here a block serves a head alone: two warpgroups carry S
//             and solve for the errors, square by square; two prepare the rest in turns, and nothing is copied between
//             blocks. What is prepared is little enough for 64 registers a thread, so that the chain can have 192.
//             Where heads fill the device, as many run as multiprocessors are.
// Prediction  4,600 to 4,900 cycles a chunk: 3,400 passes through shared memory, 3,100 cycles of the tensor cores, and
//             1,100 instructions of each of eight warps on either side. (8, 2048, 16) in 0.1 ms where v5 takes 0.147.
// Gained      on an H200 (8, 2048, 16) takes 0.10 ms and (16, 2048, 32) 0.36 where v5 takes 0.15 and 0.54. A chunk
// takes
//             some 4,500 cycles, and no part alone bounds them: left out to see, the forward substitution of the teams,
//             the product of P and E, or half of Q K^T and K K^T are worth 3 % each. Where heads fill the device it
//             draws all the power that it may, and its clock falls. A sequence is 18 us longer than its chunks: 3 are
//             the launch, most of the rest is memory, of which all multiprocessors ask for the first tiles and states
//             at once.
#include "gpu/kernels/launch.hpp"
#include "gpu/kernels/v7_chain.cuh"
#include "gpu/kernels/v7_prepare.cuh"

namespace delta::gpu {
namespace {

template <class In, int D, bool Trace>
__global__ void __launch_bounds__(512, 1)
    walk_heads_alone(const Arguments a, const __grid_constant__ AllMaps maps, const Shape given) {
  Shape shape = given;
  shape.pass = Pass::whole, shape.segments = 1;  // known here, so that nothing else is compiled
  using Memory = AloneShared<D>;
  extern __shared__ __align__(1024) unsigned char memory[];
  const int group = uniform(static_cast<int>(threadIdx.x) / 128);
  if (group >= 2) begin_alone<In, D, Trace>(a, maps, shape, memory, group - 2);
  // P and the squares have no blocks right of the diagonal: zeros, and nobody writes there again.
  clear_rows<512>(memory + Memory::kScores, (Memory::kValue - Memory::kScores) / kTileBytes, 0, threadIdx.x);
  __syncthreads();
  // 65536 registers: 128 (2 x 192 + 2 x 64). The order of the branches is the order of the code, and what lies where in
  // the cache of instructions counts: the other order takes 3 to 4 % longer.
  if (group < shape.warpgroups) {
    take_registers<192>();
    carry_alone<In, D, Trace>(a, shape, memory, group);
  } else if (group >= 2) {  // with 64 rows of S warpgroup 1 has nothing to do
    give_registers<64>();
    prepare_alone<In, D, Trace>(a, maps, shape, memory, group - 2);
  }
}

template <class In, int D, bool Trace>
cudaError_t launch(const Arguments& a, const AllMaps& maps, const deltaref_gpu_plan_t& plan, cudaStream_t stream) {
  const auto kernel = walk_heads_alone<In, D, Trace>;
  Shape shape{};  // of what v7 reads; the kernel itself knows the pass
  shape.warpgroups = plan.rows / 64;
  shape.parts = static_cast<unsigned>(a.N * a.HV), shape.clusters = static_cast<unsigned>(plan.clusters);
  if (const cudaError_t error = allow_all_shared_memory(kernel); error != cudaSuccess) return error;
  kernel<<<shape.clusters, 512, AloneShared<D>::bytes(shape.warpgroups), stream>>>(a, maps, shape);
  return cudaGetLastError();
}

template <class In, int D>
cudaError_t launch(const Arguments& a, const AllMaps& maps, const deltaref_gpu_plan_t& plan, cudaStream_t stream) {
  return a.trace.gamma || a.trace.L_g || a.trace.inverse || a.trace.Z || a.trace.S
             ? launch<In, D, true>(a, maps, plan, stream)
             : launch<In, D, false>(a, maps, plan, stream);
}

}  // namespace

cudaError_t launch_v7(const Arguments& a, deltaref_dtype dtype, const deltaref_gpu_plan_t& plan, cudaStream_t stream) {
  AllMaps maps{};
  if (const cudaError_t error = describe(maps, a, dtype, Fetch::tiles); error != cudaSuccess) return error;
  if (dtype == DELTAREF_BF16)
    return a.d_k == 64 ? launch<__nv_bfloat16, 64>(a, maps, plan, stream)
                       : launch<__nv_bfloat16, 128>(a, maps, plan, stream);
  return a.d_k == 64 ? launch<__half, 64>(a, maps, plan, stream) : launch<__half, 128>(a, maps, plan, stream);
}

}  // namespace delta::gpu

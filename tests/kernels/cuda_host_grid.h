// Runs the CUDA backend's kernels on the host: the very code, a thread of the host for each thread
// of a block, one block after the other. Include before any .cuh file of the backend.
#pragma once

#include <atomic>
#include <barrier>
#include <cmath>
#include <cstdint>
#include <thread>
#include <vector>

// A namespace of their own: the library has the device's functions under the same names.
#define cuda cuda_on_host
#define __global__
#define __device__
#define __shared__ static  // blocks run one after the other

namespace dmuon::kernels::testing {

struct Index {
  unsigned x = 0;
  unsigned y = 0;
};

inline thread_local Index g_thread;
inline thread_local Index g_block;
inline thread_local Index g_block_size;
inline thread_local Index g_grid_size;
inline thread_local std::barrier<>* g_barrier = nullptr;

// kernel() is called by every thread of every block.
template <typename Kernel>
void RunOnHost(Index grid, Index block, const Kernel& kernel) {
  std::barrier barrier(static_cast<std::ptrdiff_t>(block.x) * block.y);
  const auto run = [&](Index thread) {
    g_thread = thread;
    g_block_size = block;
    g_grid_size = grid;
    g_barrier = &barrier;
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        g_block = {x, y};
        kernel();
        barrier.arrive_and_wait();
      }
    }
  };
  std::vector<std::jthread> threads;
  for (unsigned y = 0; y < block.y; ++y) {
    for (unsigned x = 0; x < block.x; ++x) {
      threads.emplace_back(run, Index{x, y});
    }
  }
}

}  // namespace dmuon::kernels::testing

#define threadIdx ::dmuon::kernels::testing::g_thread
#define blockIdx ::dmuon::kernels::testing::g_block
#define blockDim ::dmuon::kernels::testing::g_block_size
#define gridDim ::dmuon::kernels::testing::g_grid_size

inline void __syncthreads() { ::dmuon::kernels::testing::g_barrier->arrive_and_wait(); }
inline int atomicOr(int* target, int bits) { return std::atomic_ref<int>(*target).fetch_or(bits); }

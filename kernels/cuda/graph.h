// A captured sequence of work that is launched as one.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <utility>

#include "kernels/cuda/memory.h"

namespace dmuon::kernels::cuda {

// Move-only; empty until captured.
class Graph {
 public:
  Graph() = default;
  Graph(Graph&& other) noexcept { *this = std::move(other); }
  Graph& operator=(Graph&& other) noexcept {
    std::swap(executable_, other.executable_);
    return *this;
  }
  ~Graph();

  // What `queue` puts on `stream`, and on streams that it makes wait for `stream` and `stream` for
  // them. Nothing of it runs. Everything must have run before, so that no library loads or
  // allocates now. Throws what `queue` throws, and where something cannot be captured; `stream` is
  // usable then.
  static Graph Capture(const Stream& stream, const std::function<void()>& queue);

  bool empty() const { return executable_ == nullptr; }
  void Launch(const Stream& stream) const;

 private:
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace dmuon::kernels::cuda

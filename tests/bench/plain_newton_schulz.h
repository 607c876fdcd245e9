// What people run on a GPU today: the plain iteration, a library call per line.
#pragma once

#include <cstdint>
#include <memory>

namespace dmuon::kernels::testing {

// Five iterations in bf16 on cuda:0 of `batch` matrices whose smaller side comes first: per
// iteration three cuBLAS products over the whole batch, as PyTorch's baddbmm makes them (the addend
// copied into the result first), with PyTorch's default settings. Neither momentum nor
// normalisation nor update.
class PlainNewtonSchulz {
 public:
  // Throws std::runtime_error without such a device, in builds without the CUDA backend too.
  PlainNewtonSchulz(int64_t rows, int64_t cols, int64_t batch);
  ~PlainNewtonSchulz();
  PlainNewtonSchulz(const PlainNewtonSchulz&) = delete;
  PlainNewtonSchulz& operator=(const PlainNewtonSchulz&) = delete;

  // Has finished on return.
  void Run();

 private:
  class Iteration;
  std::unique_ptr<Iteration> iteration_;
};

}  // namespace dmuon::kernels::testing

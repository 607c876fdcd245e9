// Newton-Schulz on a batch of normalised matrices that are at least as wide as high.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/cpu/tiled_product.h"
#include "kernels/cpu/workspace.h"
#include "kernels/options.h"

namespace dmuon::kernels {

// Storage of an iteration; sums are always fp32. fp16 exists on the CPU for measurements only.
struct NewtonSchulzStorage {
  ElementType x = ElementType::kFloat32;
  ElementType square = ElementType::kFloat32;  // A and B of the direct form; R, Z, Q of the Gram
};

NewtonSchulzStorage StorageOf(const NewtonSchulzOptions& options);

// One batch of `count` contiguous m x n matrices, m <= n.
class NewtonSchulz {
 public:
  // Takes its memory from `workspace`: up to BytesPerMatrix for each matrix.
  NewtonSchulz(TileRunner& runner, Workspace& workspace, const NewtonSchulzOptions& options,
               const NewtonSchulzStorage& storage, int64_t m, int64_t n, int64_t count);

  static int64_t BytesPerMatrix(Form form, const NewtonSchulzStorage& storage, int64_t m,
                                int64_t n);

  // Where the input goes: normalised, contiguous, of type storage.x.
  void* x() const { return x_.data; }
  // fp32 room for the batch that is free until Run.
  float* spare() const { return static_cast<float*>(result_.data); }

  // Consumes x. Returns the results, contiguous m x n in fp32 (the last product is not rounded):
  // the same bits for any count, position in the batch and number of threads.
  const float* Run();

 private:
  static constexpr int kMaxSquares = 5;

  BatchedMatrix Square(int index) const { return {squares_[index], storage_.square, m_, m_ * m_}; }
  void RunDirect();
  void RunGram();
  bool RestartsBefore(int iteration) const;
  // out = factor * left * right + addend_factor * addend, all m x m and symmetric.
  void SymmetricProduct(const BatchedMatrix& left, const BatchedMatrix& right, double factor,
                        const BatchedMatrix& addend, double addend_factor,
                        const BatchedMatrix& out);
  // out = X X^T
  void GramOfX(const BatchedMatrix& out);
  // X <- left * X + factor * X
  void ApplyToX(const BatchedMatrix& left, double factor, bool last);
  // out = z + a I
  void AddIdentity(const BatchedMatrix& z, double a, const BatchedMatrix& out);

  TileRunner& runner_;
  const NewtonSchulzOptions& options_;
  NewtonSchulzStorage storage_;
  int64_t m_;
  int64_t n_;
  int64_t count_;
  BatchedMatrix result_;  // fp32
  BatchedMatrix x_;
  BatchedMatrix next_x_;  // result_ if X is fp32
  std::array<void*, kMaxSquares> squares_{};
};

}  // namespace dmuon::kernels

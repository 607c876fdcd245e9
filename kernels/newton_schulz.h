// The Newton-Schulz recurrences, in both forms, over the few operations that a backend provides.
#pragma once

#include "kernels/options.h"

namespace dmuon::kernels {

// Storage of an iteration; sums are always fp32.
struct NewtonSchulzStorage {
  ElementType x = ElementType::kFloat32;
  ElementType square = ElementType::kFloat32;  // A and B of the direct form; R, Z, Q of the Gram
};

// fp16 on the CPU is for measurements only: its device refuses it.
NewtonSchulzStorage StorageOf(const NewtonSchulzOptions& options);

// How many m x m matrices a form keeps.
int SquaresOf(Form form);

// X (m x n, m <= n) and SquaresOf(form) matrices of m x m, known by number. All squares are
// symmetric and so are all their products here. Results are rounded once, to their storage.
class NewtonSchulzOperations {
 public:
  virtual ~NewtonSchulzOperations() = default;

  struct SymmetricProduct {
    int left = 0;
    int right = 0;
    double factor = 1.0;
    int addend = 0;
    double addend_factor = 0.0;
    int out = 0;  // not left or right; may be addend
  };

  // out = X X^T
  virtual void GramOfX(int out) = 0;
  // out = factor * left * right + addend_factor * addend
  virtual void Multiply(const SymmetricProduct& product) = 0;
  // out = z + a I
  virtual void AddIdentity(int z, double a, int out) = 0;
  // X <- left * X + factor * X. The last one leaves its result in fp32.
  virtual void ApplyToX(int left, double factor, bool last) = 0;
};

void RunNewtonSchulz(const NewtonSchulzOptions& options, NewtonSchulzOperations& operations);

}  // namespace dmuon::kernels

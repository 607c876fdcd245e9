// Prints the error of each form, restart choice and storage on each input class: the measurements
// behind DefaultForm and DefaultRestart, kept in kernels/README.md.
//
//   kernels_accuracy_table [rows cols]...
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/cpu/panel_newton_schulz.h"
#include "tests/kernels/inputs.h"
#include "tests/kernels/reference.h"

namespace dmuon::kernels::testing {
namespace {

struct Variant {
  std::string name;
  Form form = Form::kDirect;
  std::vector<int> restart;
  NewtonSchulzStorage storage;
};

std::vector<Variant> Variants() {
  const std::vector<std::vector<int>> restarts = {{}, {1}, {2}, {3}, {4}, {1, 3}, {2, 4}};
  constexpr ElementType kFp32 = ElementType::kFloat32;
  constexpr ElementType kBf16 = ElementType::kBFloat16;
  constexpr ElementType kFp16 = ElementType::kFloat16;
  std::vector<Variant> all = {{"direct fp32", Form::kDirect, {}, {kFp32, kFp32}},
                              {"direct bf16", Form::kDirect, {}, {kBf16, kBf16}},
                              {"direct fp16", Form::kDirect, {}, {kFp16, kFp16}}};
  for (const auto& restart : restarts) {
    std::string name = "gram [";
    for (const int i : restart) {
      name += std::to_string(i) + " ";
    }
    name += "] ";
    all.push_back({name + "fp32", Form::kGram, restart, {kFp32, kFp32}});
    all.push_back({name + "mixed", Form::kGram, restart, {kBf16, kFp32}});
    all.push_back({name + "fp16", Form::kGram, restart, {kFp16, kFp16}});
  }
  return all;
}

Matrix RunVariant(const Variant& variant, const Coefficients& coefficients, const Matrix& input) {
  ThreadPool pool(1);
  PanelRunner runner(pool);
  Workspace workspace;
  NewtonSchulzOptions options;
  options.coefficients = coefficients;
  options.form = variant.form;
  options.restart = variant.restart;
  workspace.Reset(
      PanelNewtonSchulz::BytesPerMatrix(variant.form, variant.storage, input.rows, input.cols));
  PanelNewtonSchulz iteration(runner, workspace, variant.form, variant.storage, input.rows,
                              input.cols, 1);
  for (int64_t row = 0; row < input.rows; row += kBlockSide) {
    for (int64_t col = 0; col < input.cols; col += kBlockSide) {
      const int64_t rows = std::min(kBlockSide, input.rows - row);
      const int64_t cols = std::min(kBlockSide, input.cols - col);
      float block[kBlockElements] = {};
      for (int64_t i = 0; i < rows * cols; ++i) {
        block[i / cols * kBlockSide + i % cols] =
            static_cast<float>(input.at(row + i / cols, col + i % cols));
      }
      iteration.StoreX(0, row, col, rows, cols, block);
    }
  }
  iteration.Run(options);
  std::vector<float> result;
  for (int64_t row = 0; row < input.rows; ++row) {
    for (int64_t col = 0; col < input.cols; col += kBlockSide) {
      const int64_t row_in_block = row % kBlockSide;
      const float* first =
          iteration.Result(0, row - row_in_block, col) + row_in_block * iteration.result_ld();
      result.insert(result.end(), first, first + std::min(kBlockSide, input.cols - col));
    }
  }
  return FromFloats(input.rows, input.cols, result.data());
}

void PrintTable(const NamedCoefficients& set, int64_t rows, int64_t cols) {
  std::printf("\n%s %ld x %ld\n%-20s", set.name.c_str(), static_cast<long>(rows),
              static_cast<long>(cols), "");
  const std::vector<InputClass>& classes = AllInputClasses();
  for (const InputClass input : classes) {
    std::printf(" %13s", NameOf(input).c_str());
  }
  std::printf("\n%-20s", "plain bf16");
  std::vector<Matrix> inputs;
  std::vector<double> plain;
  for (const InputClass input : classes) {
    inputs.push_back(MakeInput(input, rows, cols, 1));
    const Matrix cast = CastInput(inputs.back(), Normalize::kStrict, 0, ElementType::kBFloat16);
    plain.push_back(RelativeError(PlainBFloat16(cast, set.values), Polynomial(cast, set.values)));
    std::printf(" %13.1e", plain.back());
  }
  std::printf("\n");
  std::vector<std::vector<Matrix>> casts(3);
  std::vector<std::vector<Matrix>> exact(3);
  for (const auto type : {ElementType::kFloat32, ElementType::kBFloat16, ElementType::kFloat16}) {
    for (const Matrix& input : inputs) {
      Matrix cast = CastInput(input, Normalize::kStrict, 0, type);
      exact[static_cast<int>(type)].push_back(Polynomial(cast, set.values));
      casts[static_cast<int>(type)].push_back(std::move(cast));
    }
  }
  for (const Variant& variant : Variants()) {
    std::printf("%-20s", variant.name.c_str());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const int type = static_cast<int>(variant.storage.x);
      const double error =
          RelativeError(RunVariant(variant, set.values, casts[type][i]), exact[type][i]);
      const double limit = variant.storage.x != ElementType::kFloat32 ? 1.2 * plain[i]
                           : variant.form == Form::kGram              ? 3e-4
                                                                      : 5e-5;
      std::printf(" %12.1e%c", error, error <= limit ? ' ' : '!');
    }
    std::printf("\n");
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace dmuon::kernels::testing

int main(int argc, char** argv) {
  using namespace dmuon::kernels::testing;  // NOLINT
  std::vector<long> sizes = {256, 1024};
  if (argc > 2) {
    sizes.clear();
    for (int i = 1; i < argc; ++i) {
      sizes.push_back(std::strtol(argv[i], nullptr, 10));
    }
  }
  for (std::size_t i = 0; i + 1 < sizes.size(); i += 2) {
    for (const NamedCoefficients& set : CoefficientSets()) {
      PrintTable(set, sizes[i], sizes[i + 1]);
    }
  }
  return 0;
}

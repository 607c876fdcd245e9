#include "tests/bench/elementwise_case.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "kernels/half_types.h"

namespace dmuon::kernels::testing {
namespace {

// Values of all magnitudes from 2^-20 to 1, both signs: no denormals in what is computed of them.
void Fill(ElementType type, const Buffer& buffer) {
  uint32_t bits = 1;
  const auto next = [&bits] {
    bits = bits * 1664525U + 1013904223U;
    return std::ldexp(static_cast<float>(static_cast<int32_t>(bits)), -31 - (bits >> 12) % 20);
  };
  if (type == ElementType::kFloat32) {
    std::generate_n(buffer.floats(), buffer.bytes() / SizeOf(type), next);
  } else {
    std::generate_n(static_cast<uint16_t*>(buffer.data()), buffer.bytes() / SizeOf(type),
                    [&] { return BFloat16FromFloat(next()); });
  }
}

int InputsOf(const ElementwiseOptions& options) {
  switch (options.operation) {
    case Operation::kAdamW:
      return 4;  // gradient, master, both moments
    case Operation::kReduce:
      return options.sources;
    case Operation::kPublish:
    case Operation::kNorm:
      return 1;
    case Operation::kMuonPass:
      return 0;  // has its own
  }
  return 0;
}

int OutputsOf(const ElementwiseOptions& options) {
  switch (options.operation) {
    case Operation::kAdamW:
      return 3;
    case Operation::kReduce:
    case Operation::kPublish:
      return 1;
    case Operation::kNorm:
    case Operation::kMuonPass:
      return 0;
  }
  return 0;
}

std::string NameOf(MuonPass pass) {
  switch (pass) {
    case MuonPass::kMomentum:
      return "muon_momentum";
    case MuonPass::kNormalize:
      return "muon_normalize";
    case MuonPass::kUpdate:
      return "muon_update";
  }
  return "";
}

}  // namespace

std::string NameOf(const ElementwiseOptions& options) {
  switch (options.operation) {
    case Operation::kAdamW:
      return "adamw";
    case Operation::kReduce:
      return "reduce" + std::to_string(options.sources) + "_" + std::string(NameOf(options.type));
    case Operation::kPublish:
      return "publish_" + std::string(NameOf(options.type));
    case Operation::kNorm:
      return "norm";
    case Operation::kMuonPass:
      return NameOf(options.pass);
  }
  return "";
}

const std::vector<ElementwiseOptions>& AllElementwiseCases() {
  static const std::vector<ElementwiseOptions> kCases = {
      {Operation::kAdamW},
      {Operation::kReduce, ElementType::kFloat32, 2},
      {Operation::kReduce, ElementType::kFloat32, 4},
      {Operation::kReduce, ElementType::kBFloat16, 2},
      {Operation::kReduce, ElementType::kBFloat16, 4},
      {Operation::kPublish, ElementType::kBFloat16},
      {Operation::kPublish, ElementType::kFloat16},
      {Operation::kPublish, ElementType::kFloat32},
      {Operation::kNorm},
      {.operation = Operation::kMuonPass, .pass = MuonPass::kMomentum},
      {.operation = Operation::kMuonPass, .pass = MuonPass::kNormalize},
      {.operation = Operation::kMuonPass, .pass = MuonPass::kUpdate}};
  return kCases;
}

ElementwiseCase::ElementwiseCase(Device& device, const ElementwiseOptions& options,
                                 int64_t array_bytes, int threads)
    : device_(device), options_(options), count_(array_bytes / SizeOf(options.type)) {
  if (options.operation == Operation::kMuonPass) {
    pass_ = std::make_unique<MuonPassCase>(device, options.pass, array_bytes, threads);
  } else {
    AllocateArrays();
  }
}

void ElementwiseCase::AllocateArrays() {
  constexpr ElementType kFloat = ElementType::kFloat32;
  const bool reduce = options_.operation == Operation::kReduce;
  const bool publish = options_.operation == Operation::kPublish;
  const ElementType input_type = reduce ? options_.type : kFloat;
  const ElementType output_type = publish ? options_.type : kFloat;
  for (int i = 0; i < InputsOf(options_); ++i) {
    inputs_.push_back(device_.Allocate(count_ * SizeOf(input_type)));
    Fill(input_type, inputs_.back());
  }
  for (int i = 0; i < OutputsOf(options_); ++i) {
    outputs_.push_back(device_.Allocate(count_ * SizeOf(output_type)));
  }
  if (reduce) {
    std::transform(inputs_.begin(), inputs_.end(), std::back_inserter(sources_),
                   [](const Buffer& input) { return ReduceSource{input.data()}; });
  }
  if (options_.operation == Operation::kAdamW) {  // second moments are not negative
    float* squares = inputs_[3].floats();
    std::transform(squares, squares + count_, squares, [](float v) { return std::fabs(v); });
  }
}

void ElementwiseCase::RunAdamW() {
  const AdamWValues values{1e-3, 0.1, 0.9, 0.95, 1e-8, 10, 1.0};
  const AdamWRange range{count_,
                         inputs_[0].floats(),
                         inputs_[1].floats(),
                         inputs_[2].floats(),
                         inputs_[3].floats(),
                         outputs_[0].floats(),
                         outputs_[1].floats(),
                         outputs_[2].floats()};
  if (!device_.AdamWStep(values, range)) {
    throw std::runtime_error("a measured step is not finite");
  }
}

void ElementwiseCase::RunReduce() {
  device_.Reduce(options_.type, sources_, count_, 1.0F / static_cast<float>(options_.sources),
                 outputs_[0].floats());
}

void ElementwiseCase::Run() {
  switch (options_.operation) {
    case Operation::kAdamW:
      return RunAdamW();
    case Operation::kReduce:
      return RunReduce();
    case Operation::kPublish:
      return device_.Publish(options_.type, inputs_[0].floats(), count_, outputs_[0].data());
    case Operation::kNorm:
      if (!device_.MeasureNorm(inputs_[0].floats(), count_).finite) {
        throw std::runtime_error("a measured norm is not finite");
      }
      return;
    case Operation::kMuonPass:
      return pass_->Run();
  }
}

int64_t ElementwiseCase::bytes() const {
  if (pass_ != nullptr) {
    return pass_->bytes();
  }
  int64_t bytes = 0;
  for (const std::vector<Buffer>* buffers : {&inputs_, &outputs_}) {
    for (const Buffer& buffer : *buffers) {
      bytes += buffer.bytes();
    }
  }
  return bytes;
}

}  // namespace dmuon::kernels::testing

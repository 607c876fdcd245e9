#include "kernels/cuda/plan_queue.h"

#include <cstring>
#include <utility>
#include <variant>

#include "kernels/cuda/check.h"
#include "kernels/cuda/data_type.h"

namespace dmuon::kernels::cuda {
namespace {

// Since cuBLAS 12.5.
#if CUBLAS_VERSION >= 120500
constexpr bool kHasGrouped = true;
#else
constexpr bool kHasGrouped = false;
#endif

// cublasGemmGroupedBatchedEx takes operands and results of one type only.
bool FitsGroupedCall(const TriangleProduct& product) {
  return kHasGrouped && product.left.type == product.result.type;
}

template <typename... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <typename... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

void QueueConvert(cudaStream_t stream, TypedPointer from, TypedPointer to, int64_t count) {
  if (from.type != to.type) {
    LaunchConvert(stream, from, to, count);
    return;
  }
  DMUON_CUDA_CHECK(cudaMemcpyAsync(to.data, from.data, count * SizeOf(from.type),
                                   cudaMemcpyDeviceToDevice, stream));
}

}  // namespace

PlanQueue::PlanQueue(NewtonSchulzPlan plan, const Lane& lane)
    : plan_(std::move(plan)), lane_(&lane) {
  PreparePointers();
}

void* PlanQueue::At(int64_t offset) const {
  return static_cast<char*>(lane_->workspace.data()) + offset;
}

ArrayPointer PlanQueue::PointerTo(const Array& array) const {
  return {{At(array.offset), array.type}, array.stride, array.ld};
}

void PlanQueue::PreparePointers() {
  std::vector<void*> pointers;
  const auto add = [&](const std::vector<int64_t>& offsets) {
    for (const int64_t offset : offsets) {
      pointers.push_back(At(offset));
    }
  };
  for (const Operation& operation : plan_.operations) {
    if (const auto* product = std::get_if<TriangleProduct>(&operation)) {
      add(product->first);
      add(product->second);
      add(product->out);
    }
  }
  if (pointers.empty()) {
    return;
  }
  const auto bytes = static_cast<int64_t>(pointers.size() * sizeof(void*));
  pointers_ = DeviceMemory(bytes);
  DMUON_CUDA_CHECK(cudaMemcpyAsync(pointers_.data(), pointers.data(), bytes, cudaMemcpyHostToDevice,
                                   lane_->stream.get()));
  lane_->stream.Synchronize();  // `pointers` ends here
  auto** next = static_cast<void**>(pointers_.data());
  for (const Operation& operation : plan_.operations) {
    const auto* product = std::get_if<TriangleProduct>(&operation);
    if (product == nullptr) {
      continue;
    }
    const std::size_t tiles = product->out.size();
    const std::size_t groups = product->groups.size();
    grouped_.push_back({GroupArraysOf(*product), std::vector(groups, CUBLAS_OP_T),
                        std::vector(groups, CUBLAS_OP_N), const_cast<const void**>(next),
                        const_cast<const void**>(next + tiles), next + 2 * tiles});
    next += 3 * tiles;
  }
}

void PlanQueue::Queue() const {
  const cudaStream_t stream = lane_->stream.get();
  const int64_t count = plan_.matrices;
  auto grouped = grouped_.begin();
  const Overloaded queue{
      [&](const WholeProduct& product) { Run(product); },
      [&](const TriangleProduct& product) { Run(product, *grouped++); },
      [&](const Mirror& mirror) {
        LaunchMirror(stream, PointerTo(mirror.array), mirror.side, count);
      },
      [&](const CopyTriangle& copy) {
        LaunchCopyTriangle(stream, PointerTo(copy.from), PointerTo(copy.to), copy.side, count);
      },
      [&](const Convert& convert) {
        QueueConvert(stream, PointerTo(convert.from).first, PointerTo(convert.to).first,
                     convert.count);
      },
      [&](const AddIdentity& sum) {
        LaunchAddIdentity(stream, PointerTo(sum.z), sum.a, sum.side, count, PointerTo(sum.out));
      }};
  for (const Operation& operation : plan_.operations) {
    std::visit(queue, operation);
  }
}

void PlanQueue::Run(const WholeProduct& product) const {
  const ColumnMajorGemm& g = product.gemm;
  const cublasOperation_t first_operation = g.first_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cudaDataType_t type = CudaType(product.first.type);
  const cudaDataType_t out_type = CudaType(product.out.type);
  const void* first = At(product.first.offset);
  const void* second = At(product.second.offset);
  void* out = At(product.out.offset);
  if (plan_.matrices == 1) {
    DMUON_CUDA_CHECK(cublasGemmEx(lane_->cublas.get(), first_operation, CUBLAS_OP_N, ToInt(g.m),
                                  ToInt(g.n), ToInt(g.k), &product.factor, first, type,
                                  ToInt(g.first_ld), second, type, ToInt(g.second_ld),
                                  &product.out_factor, out, out_type, ToInt(g.out_ld),
                                  CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    return;
  }
  DMUON_CUDA_CHECK(cublasGemmStridedBatchedEx(
      lane_->cublas.get(), first_operation, CUBLAS_OP_N, ToInt(g.m), ToInt(g.n), ToInt(g.k),
      &product.factor, first, type, ToInt(g.first_ld), product.first.stride, second, type,
      ToInt(g.second_ld), product.second.stride, &product.out_factor, out, out_type,
      ToInt(g.out_ld), product.out.stride, ToInt(plan_.matrices), CUBLAS_COMPUTE_32F,
      CUBLAS_GEMM_DEFAULT));
}

void PlanQueue::Run(const TriangleProduct& product, const Grouped& grouped) const {
  if (!FitsGroupedCall(product)) {
    RunGroups(product, grouped);
    return;
  }
#if CUBLAS_VERSION >= 120500
  const GroupArrays& a = grouped.arrays;
  const cudaDataType_t type = CudaType(product.left.type);
  DMUON_CUDA_CHECK(cublasGemmGroupedBatchedEx(
      lane_->cublas.get(), grouped.first_operations.data(), grouped.second_operations.data(),
      a.m.data(), a.n.data(), a.k.data(), a.factors.data(), grouped.first, type, a.first_ld.data(),
      grouped.second, type, a.second_ld.data(), a.out_factors.data(), grouped.out, type,
      a.out_ld.data(), static_cast<int>(a.m.size()), a.sizes.data(), CUBLAS_COMPUTE_32F));
#endif
}

// One batched call per group.
void PlanQueue::RunGroups(const TriangleProduct& product, const Grouped& grouped) const {
  const GroupArrays& a = grouped.arrays;
  const cudaDataType_t type = CudaType(product.left.type);
  int64_t tile = 0;
  for (std::size_t i = 0; i < a.m.size(); ++i) {
    DMUON_CUDA_CHECK(cublasGemmBatchedEx(
        lane_->cublas.get(), grouped.first_operations[i], grouped.second_operations[i], a.m[i],
        a.n[i], a.k[i], &a.factors[i], grouped.first + tile, type, a.first_ld[i],
        grouped.second + tile, type, a.second_ld[i], &a.out_factors[i], grouped.out + tile,
        CudaType(product.result.type), a.out_ld[i], a.sizes[i], CUBLAS_COMPUTE_32F,
        CUBLAS_GEMM_DEFAULT));
    tile += a.sizes[i];
  }
}

}  // namespace dmuon::kernels::cuda

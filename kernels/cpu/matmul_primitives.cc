#include <dnnl.hpp>
#include <map>
#include <tuple>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/onednn_check.h"

namespace dmuon::kernels {
namespace {

using dnnl::memory;

memory::data_type TypeOf(ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
      return memory::data_type::f32;
    case ElementType::kBFloat16:
      return memory::data_type::bf16;
    case ElementType::kFloat16:
      return memory::data_type::f16;
  }
  return memory::data_type::undef;
}

memory::desc Describe(int64_t rows, int64_t cols, const GemmOperand& operand) {
  const memory::dims strides =
      operand.transposed ? memory::dims{1, operand.ld} : memory::dims{operand.ld, 1};
  return {{rows, cols}, TypeOf(operand.type), strides};
}

// Sizes, leading dimensions, orientations, type.
using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, bool, bool, int>;

}  // namespace

struct MatmulPrimitives::Impl {
  // One shape's primitive with memory objects whose data is set for each call.
  struct Product {
    dnnl::matmul primitive;
    memory left;
    memory right;
    memory result;
    memory scratchpad;
  };

  Product& Find(int64_t m, int64_t n, int64_t k, const GemmOperand& left, const GemmOperand& right,
                int64_t ldc);

  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<Key, Product> products;
};

MatmulPrimitives::Impl::Product& MatmulPrimitives::Impl::Find(int64_t m, int64_t n, int64_t k,
                                                              const GemmOperand& left,
                                                              const GemmOperand& right,
                                                              int64_t ldc) {
  const Key key{m,
                n,
                k,
                left.ld,
                right.ld,
                ldc,
                left.transposed,
                right.transposed,
                static_cast<int>(left.type)};
  if (const auto found = products.find(key); found != products.end()) {
    return found->second;
  }
  const memory::desc left_desc = Describe(m, k, left);
  const memory::desc right_desc = Describe(k, n, right);
  const memory::desc result_desc({m, n}, memory::data_type::f32, memory::dims{ldc, 1});
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::matmul::primitive_desc description(
      dnnl::matmul::desc(left_desc, right_desc, result_desc), attributes, engine);
  return products
      .emplace(key,
               Product{dnnl::matmul(description), memory(left_desc, engine, nullptr),
                       memory(right_desc, engine, nullptr), memory(result_desc, engine, nullptr),
                       memory(description.scratchpad_desc(), engine)})
      .first->second;
}

MatmulPrimitives::MatmulPrimitives() = default;
MatmulPrimitives::~MatmulPrimitives() = default;
MatmulPrimitives::MatmulPrimitives(MatmulPrimitives&&) noexcept = default;
MatmulPrimitives& MatmulPrimitives::operator=(MatmulPrimitives&&) noexcept = default;

void MatmulPrimitives::Run(int64_t m, int64_t n, int64_t k, const GemmOperand& left,
                           const GemmOperand& right, float* c, int64_t ldc) {
  const OneOpenMpThread one_thread;
  try {
    if (impl_ == nullptr) {
      impl_ = std::make_unique<Impl>();
    }
    Impl::Product& product = impl_->Find(m, n, k, left, right, ldc);
    product.left.set_data_handle(const_cast<void*>(left.data));
    product.right.set_data_handle(const_cast<void*>(right.data));
    product.result.set_data_handle(c);
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, product.left.get()},
                                         {DNNL_ARG_WEIGHTS, product.right.get()},
                                         {DNNL_ARG_DST, product.result.get()},
                                         {DNNL_ARG_SCRATCHPAD, product.scratchpad.get()}};
    CheckOneDnn(dnnl_primitive_execute(product.primitive.get(), impl_->stream.get(), 4, arguments),
                "matmul");
  } catch (const dnnl::error& error) {
    CheckOneDnn(error.status, error.what());
  }
}

}  // namespace dmuon::kernels

#include "kernels/cuda/graph.h"

#include "kernels/cuda/check.h"

namespace dmuon::kernels::cuda {
namespace {

// Ends the capture if it did not come to its own end.
class CaptureGuard {
 public:
  // Only this thread must keep away from what is forbidden during a capture.
  explicit CaptureGuard(const Stream& stream) : stream_(stream.get()) {
    DMUON_CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  }
  ~CaptureGuard() {
    if (!ended_) {
      cudaStreamEndCapture(stream_, &graph_);
      cudaGetLastError();
    }
    if (graph_ != nullptr) {
      cudaGraphDestroy(graph_);
    }
  }
  CaptureGuard(const CaptureGuard&) = delete;
  CaptureGuard& operator=(const CaptureGuard&) = delete;

  cudaGraph_t End() {
    ended_ = true;
    DMUON_CUDA_CHECK(cudaStreamEndCapture(stream_, &graph_));
    return graph_;
  }

 private:
  cudaStream_t stream_;
  cudaGraph_t graph_ = nullptr;
  bool ended_ = false;
};

}  // namespace

Graph::~Graph() {
  if (executable_ != nullptr) {
    cudaGraphExecDestroy(executable_);
  }
}

Graph Graph::Capture(const Stream& stream, const std::function<void()>& queue) {
  CaptureGuard guard(stream);
  queue();
  Graph result;
  DMUON_CUDA_CHECK(cudaGraphInstantiateWithFlags(&result.executable_, guard.End(), 0));
  return result;
}

void Graph::Launch(const Stream& stream) const {
  DMUON_CUDA_CHECK(cudaGraphLaunch(executable_, stream.get()));
}

}  // namespace dmuon::kernels::cuda

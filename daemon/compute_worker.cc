#include "daemon/compute_worker.h"

namespace dmuon {

ComputeWorker::ComputeWorker()
    : thread_([this] {
        while (!stop_) {
          if (!jobs_.RunAll()) jobs_.WaitFor(std::chrono::seconds(1));
        }
      }) {}

ComputeWorker::~ComputeWorker() {
  jobs_.Post([this] { stop_ = true; });
  thread_.join();
}

}  // namespace dmuon

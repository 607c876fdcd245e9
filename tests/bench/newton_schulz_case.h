// One measured configuration of the Muon step: its time, its accuracy, its roofline.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "tests/bench/gemm_rate.h"

namespace dmuon::kernels::testing {

enum class DeviceKind { kCpu, kCuda };

// What is asked for: `precision` and `form` as in a session spec, "auto" included.
struct CaseRequest {
  std::string device = "cpu";  // or "cuda", which is cuda:0
  int64_t rows = 1024;
  int64_t cols = 4096;
  int64_t batch = 1;
  int threads = 1;       // cpu only
  bool batched = false;  // cuda only: without the promise that the batch does not change bits
  std::string precision = "auto";
  std::string form = "auto";
};

struct CaseOptions {
  DeviceKind device = DeviceKind::kCpu;
  int64_t rows = 1024;
  int64_t cols = 4096;
  int64_t batch = 1;
  int threads = 1;
  bool batched = false;
  NewtonSchulzOptions newton_schulz;  // form and restarts already chosen
};

// The shipped numerics of a shape. Throws std::invalid_argument naming the value that is wrong or
// that the device does not support, std::runtime_error where there is no such device.
CaseOptions MakeCase(const CaseRequest& request);

// A batch with its state on a device, ready to be stepped again and again.
class NewtonSchulzCase {
 public:
  explicit NewtonSchulzCase(const CaseOptions& options);

  // One whole Muon step of the batch: momentum, normalisation, iteration, update. On every device
  // it has finished on return, because whether the result is finite comes to the host last.
  void Step();
  double useful_gflop() const;
  const Device& device() const { return *device_; }

 private:
  CaseOptions options_;
  std::unique_ptr<Device> device_;
  std::vector<Buffer> buffers_;
  std::vector<MuonMatrix> matrices_;
  std::unique_ptr<bool[]> finite_;
};

// Of the time that the useful arithmetic would take at the best rates, the fraction that `step_s`
// is: 1 at the roofline. Mixed forms count each part at its own precision's rate.
double RooflineFraction(const CaseOptions& options, double step_s, const GemmRate& x_rate,
                        const GemmRate& square_rate);

struct Accuracy {
  double error_vs_plain = 0.0;  // our error over that of the plain bf16 iteration, worst class
  std::string worst;            // that class
  int64_t rows = 0;             // measured on this shape of the same proportions: the fp64
  int64_t cols = 0;             // reference is slow
};

Accuracy MeasureAccuracy(const CaseOptions& options);

}  // namespace dmuon::kernels::testing

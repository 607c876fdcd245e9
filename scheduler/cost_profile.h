// What a step costs on one device, in seconds. Formats and assumptions: scheduler/README.md.
//
// A profile is immutable and may be shared by threads. Costs are pure functions of their arguments.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/options.h"

namespace dmuon::scheduler {

// A profile that is refused. what() is one line naming the file, the key and the value.
class ProfileError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

class CostProfile {
 public:
  virtual ~CostProfile() = default;

  // For people: "a800", or the key of the tuning file's entry.
  virtual const std::string& name() const = 0;

  // One Muon step of a batch of `count` >= 0 matrices of `rows` x `cols`: momentum, Newton-Schulz
  // and update, nothing of communication. 0 for no matrix, else > 0 and finite.
  virtual double MuonSeconds(int64_t rows, int64_t cols,
                             const kernels::NewtonSchulzOptions& options, int64_t count) const = 0;

  // What is guessed in MuonSeconds for this shape, as one line for people; empty where the profile
  // knows the shape.
  virtual std::string GuessAbout(int64_t rows, int64_t cols,
                                 const kernels::NewtonSchulzOptions& options) const = 0;

  // Reading and writing `bytes` of device memory, as AdamW does (28 bytes an element).
  virtual double ElementwiseSeconds(double bytes) const = 0;

  // What `precision: auto` means on the device; unset where the profile does not say.
  virtual std::optional<kernels::ElementType> auto_precision() const = 0;
  // Of the device; unset where the profile does not say.
  virtual std::optional<int64_t> memory_bytes() const = 0;
  virtual std::optional<double> memory_bytes_per_s() const = 0;  // sustained
  // To and from the other devices of the node, one direction.
  virtual std::optional<double> link_bytes_per_s() const = 0;
  // Large products with operands of `type`, multiply-adds counted as two, sustained.
  virtual std::optional<double> gemm_flops_per_s(kernels::ElementType type) const = 0;
};

using CostProfilePtr = std::shared_ptr<const CostProfile>;

// AdamW reads gradient, master and two moments and writes the last three.
inline constexpr double kAdamWBytesPerElement = 28.0;

// Reads a profile of either format. `file` is for messages. `entry` chooses one of several devices
// of a tuning file by its key; empty: the only one. Throws ProfileError.
CostProfilePtr ParseCostProfile(std::string_view json, const std::string& file,
                                const std::string& entry = "");

// `source` is the name of a shipped profile or else the path of a file. Throws ProfileError; for
// what is neither it lists the shipped names.
CostProfilePtr LoadCostProfile(const std::string& source, const std::string& entry = "");

// Names of the shipped profiles, sorted; their files are in deploy/profiles and in the library.
std::vector<std::string> ShippedProfiles();

// What is used without a profile: useful flops at 1 Tflop/s and bytes at 32 flops each. Proportions
// of a step's parts, and no device's seconds.
CostProfilePtr ArithmeticProfile();

}  // namespace dmuon::scheduler

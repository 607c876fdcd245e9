// The file in which the autotuner's measurements are kept: the choices that owners execute with,
// and the scheduler's cost profile. Format: scheduler/README.md.
//
// Safe with many processes on one file: each writer reads, merges and replaces it under a lock
// (FILE.lock, which stays), so that nothing is lost; the file is replaced whole, so that readers
// need no lock and a killed writer leaves the file as it was.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/device.h"

namespace dmuon::scheduler {

// A file that is not a tuning cache, or a damaged one. what() is one line naming file, key and
// cause.
class TuningCacheError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct TuningRecord {
  kernels::ExecutionCase measured;
  kernels::MuonExecution choice;
  double median_s = 0.0;  // of a Muon step of the batch, so executed
};

// What is known of one device.
struct TuningEntry {
  double elementwise_bytes_per_s = 0.0;  // of AdamW
  std::vector<TuningRecord> records;
};

// What the measurements of a device are filed under: device, threads, libraries, version of dmuon.
std::string TuningKey(const kernels::DeviceIdentity& device);

class TuningCache {
 public:
  // Nothing is read or written yet.
  explicit TuningCache(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  bool Exists() const;
  // The device's entry; none where the file is missing or has no such key. Throws TuningCacheError
  // for a damaged or foreign file, std::runtime_error for one that cannot be read.
  std::optional<TuningEntry> Read(const kernels::DeviceIdentity& device) const;
  // All keys of the file, sorted; none where it is missing. Throws as Read.
  std::vector<std::string> Keys() const;

  // Throws what Merge would throw for this file: to be called before long work.
  void CheckWritable() const;
  // Replaces records of equal cases and the rate, and keeps everything else. Throws as Read, and
  // std::runtime_error where the file cannot be written; the file is as before then.
  void Merge(const kernels::DeviceIdentity& device, const TuningEntry& measured) const;

 private:
  std::string path_;
};

// The choices of an entry, for Device::UseTuning.
kernels::ExecutionTable ExecutionTableOf(const TuningEntry& entry);

}  // namespace dmuon::scheduler

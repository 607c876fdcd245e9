// "dmuon-tuning-1" as JSON. Internal to scheduler/. Everything that reads throws SpecError naming
// key and value.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "proto/spec_reader.h"
#include "scheduler/tuning_cache.h"

namespace dmuon::scheduler {

Json EmptyTuningRoot();
// Checks the format and that there are entries; what is in an entry is checked when it is read, for
// other versions of dmuon may have written others.
void CheckTuningRoot(const Json& root);

std::vector<std::string> TuningKeysOf(const Json& root);
std::optional<TuningEntry> ReadTuningEntry(const Json& root, const std::string& key);
// Replaces records of equal cases and the rate, and keeps everything else.
void MergeTuningEntry(const kernels::DeviceIdentity& device, const std::string& key,
                      const TuningEntry& measured, Json* root);

}  // namespace dmuon::scheduler

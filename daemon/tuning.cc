#include "daemon/tuning.h"

#include <stdexcept>

#include "scheduler/tuning_cache.h"

namespace dmuon {
namespace {

constexpr char kMakeOne[] = "; kernels run by their defaults. dmuonctl tune --spec SPEC --cache ";

std::string ListOf(const std::vector<std::string>& keys) {
  std::string list;
  for (const std::string& key : keys) {
    list += (list.empty() ? "\"" : ", \"") + key + "\"";
  }
  return list.empty() ? "nothing" : list;
}

}  // namespace

TuningUse UseTuningCache(const std::string& path, kernels::Device& device) {
  const scheduler::TuningCache cache(path);
  if (!cache.Exists()) {
    return {false, "kernels.tuning: " + path + " does not exist" + kMakeOne + path + " makes it"};
  }
  const kernels::DeviceIdentity identity = device.Identity();
  const std::string key = scheduler::TuningKey(identity);
  const auto entry = cache.Read(identity);
  if (!entry) {
    return {false, "kernels.tuning: " + path + " has nothing for \"" + key + "\", only for " +
                       ListOf(cache.Keys()) + kMakeOne + path + " --threads " +
                       std::to_string(identity.threads) + " adds it"};
  }
  try {
    device.UseTuning(scheduler::ExecutionTableOf(*entry));
  } catch (const std::invalid_argument& error) {
    throw std::runtime_error("kernels.tuning: " + path + ": \"" + key + "\": " + error.what());
  }
  return {true, "kernels.tuning: " + std::to_string(entry->records.size()) + " choices from " +
                    path + " for \"" + key + "\""};
}

}  // namespace dmuon

#include "scheduler/cost_profile.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "proto/session_spec.h"
#include "scheduler/profile_formats.h"
#include "scheduler/shipped_profiles.h"

namespace dmuon::scheduler {
namespace {

constexpr int kMaxDepth = 12;
constexpr std::uintmax_t kMaxFileBytes = std::uintmax_t{1} << 28;

CostProfilePtr ReadEitherFormat(const Json& json, const spec::KeyPath& path,
                                const std::string& entry) {
  if (!json.is_object()) {
    spec::Refuse(path, Excerpt(json) + " is not an object, like {\"format\": ...}");
  }
  const Json& format = Require(json, path, "format");
  if (format == kTuningFormat) {
    return ReadMeasuredProfile(json, path, entry);
  }
  if (format != kAnalyticFormat) {
    spec::Refuse(spec::KeyPath(path, "format"), Excerpt(format) + " is not one of \"" +
                                                    std::string(kAnalyticFormat) + "\", \"" +
                                                    std::string(kTuningFormat) + "\"");
  }
  if (!entry.empty()) {
    spec::Refuse(path, "describes one device; leave the entry '" + entry + "' out");
  }
  return ReadAnalyticProfile(json, path);
}

[[noreturn]] void RefuseSource(const std::string& source, const std::string& cause) {
  std::string names;
  for (const ShippedProfile& shipped : kShippedProfiles) {
    names += (names.empty() ? "" : ", ") + std::string(shipped.name);
  }
  throw ProfileError(source + ": " + cause + "; give the path of a profile or one of the names " +
                     names);
}

std::string ReadProfileFile(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    RefuseSource(path, "neither a shipped profile nor a file");
  }
  if (!std::filesystem::is_regular_file(status)) {
    RefuseSource(path, "not a regular file");
  }
  if (std::filesystem::file_size(path, error) > kMaxFileBytes) {
    RefuseSource(path, "cannot be a profile, being larger than 256 MiB");
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    RefuseSource(path, std::string("cannot be read: ") + std::strerror(errno));
  }
  return text.str();
}

}  // namespace

const Json& Require(const Json& object, const spec::KeyPath& path, std::string_view key) {
  const Json* value = spec::Find(object, key);
  if (value == nullptr) {
    spec::Refuse(path, "has no \"" + std::string(key) + "\"; this format needs it");
  }
  return *value;
}

double ReadPositive(const Json& object, const spec::KeyPath& path, std::string_view key) {
  const spec::NumberRange positive{.exclude_min = true, .rule = "it must be > 0"};
  return spec::ReadNumber(Require(object, path, key), spec::KeyPath(path, key), positive);
}

CostProfilePtr ParseCostProfile(std::string_view json, const std::string& file,
                                const std::string& entry) {
  try {
    return ReadEitherFormat(ParseStrictJson(json, kMaxDepth), spec::KeyPath(), entry);
  } catch (const SpecError& error) {
    throw ProfileError(file + ": " + error.what());
  }
}

CostProfilePtr LoadCostProfile(const std::string& source, const std::string& entry) {
  for (const ShippedProfile& shipped : kShippedProfiles) {
    if (source == shipped.name) {
      return ParseCostProfile(shipped.json, source, entry);
    }
  }
  return ParseCostProfile(ReadProfileFile(source), source, entry);
}

std::vector<std::string> ShippedProfiles() {
  std::vector<std::string> names;
  for (const ShippedProfile& shipped : kShippedProfiles) {
    names.emplace_back(shipped.name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

CostProfilePtr ArithmeticProfile() {
  return ParseCostProfile(
      R"({"format": "dmuon-profile-1", "name": "arithmetic", "memory_bytes_per_s": 3.125e10,
          "gemm": {"fp32": {"peak_flops_per_s": 1e12}, "bf16": {"peak_flops_per_s": 1e12},
                   "fp16": {"peak_flops_per_s": 1e12}}})",
      "arithmetic");
}

}  // namespace dmuon::scheduler

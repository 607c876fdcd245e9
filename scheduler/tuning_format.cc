#include "scheduler/tuning_format.h"

#include <algorithm>

#include "kernels/execution_fields.h"
#include "proto/session_spec.h"

namespace dmuon::scheduler {
namespace {

constexpr std::string_view kTuningFormatName = "dmuon-tuning-1";
constexpr int64_t kLargestSize = int64_t{1} << 31;
constexpr int64_t kMostIterations = 64;
constexpr int64_t kLargestChoice = 1 << 30;

constexpr spec::EnumName<kernels::Form> kTunedForms[] = {{"direct", kernels::Form::kDirect},
                                                         {"gram", kernels::Form::kGram}};
constexpr spec::EnumName<kernels::ElementType> kTunedPrecisions[] = {
    {"fp32", kernels::ElementType::kFloat32},
    {"bf16", kernels::ElementType::kBFloat16},
    {"fp16", kernels::ElementType::kFloat16}};

const Json& Need(const Json& object, const spec::KeyPath& path, std::string_view key) {
  const Json* value = spec::Find(object, key);
  if (value == nullptr) {
    spec::Refuse(path, "has no key " + std::string(key));
  }
  return *value;
}

double ReadMeasured(const Json& object, const spec::KeyPath& path, std::string_view key) {
  spec::NumberRange range;
  range.exclude_min = true;
  range.rule = "measurements are > 0";
  return spec::ReadNumber(Need(object, path, key), spec::KeyPath(path, key), range);
}

kernels::MuonExecution ReadChoice(const Json& choice, const spec::KeyPath& path) {
  if (!choice.is_object()) {
    spec::Refuse(path, Excerpt(choice) + " is not an object, like {\"part\": 1}");
  }
  kernels::MuonExecution execution;
  for (const auto& [name, value] : choice.items()) {
    const auto fields = kernels::ExecutionFields();
    const auto field = std::find_if(fields.begin(), fields.end(),
                                    [&name = name](const auto& f) { return f.name == name; });
    if (field == fields.end()) {
      spec::Refuse(spec::KeyPath(path, name), "is no choice that this version knows");
    }
    execution.*field->value =
        static_cast<int>(spec::ReadInteger(value, spec::KeyPath(path, name), 0, kLargestChoice));
  }
  return execution;
}

std::vector<int> ReadTunedRestart(const Json& restart, const spec::KeyPath& path, int iterations) {
  if (!restart.is_array()) {
    spec::Refuse(path, Excerpt(restart) + " is not a list of iterations");
  }
  std::vector<int> result;
  for (size_t i = 0; i < restart.size(); ++i) {
    result.push_back(static_cast<int>(
        spec::ReadInteger(restart[i], spec::KeyPath(path, i), 0, int64_t{iterations} - 1)));
  }
  return result;
}

TuningRecord ReadTunedRecord(const Json& json, const spec::KeyPath& path) {
  spec::CheckKeys(json, path,
                  {"rows", "cols", "batch", "precision", "form", "restart", "iterations", "choice",
                   "median_s"});
  const auto at = [&](std::string_view key) { return spec::KeyPath(path, key); };
  const auto integer = [&](std::string_view key, int64_t max) {
    return spec::ReadInteger(Need(json, path, key), at(key), 1, max);
  };
  TuningRecord record;
  kernels::ExecutionCase& measured = record.measured;
  measured.rows = integer("rows", kLargestSize);
  measured.cols = integer("cols", kLargestSize);
  measured.batch = integer("batch", kLargestSize);
  measured.precision =
      spec::ReadEnum(Need(json, path, "precision"), at("precision"), kTunedPrecisions);
  measured.form = spec::ReadEnum(Need(json, path, "form"), at("form"), kTunedForms);
  measured.iterations = static_cast<int>(integer("iterations", kMostIterations));
  measured.restart =
      ReadTunedRestart(Need(json, path, "restart"), at("restart"), measured.iterations);
  record.choice = ReadChoice(Need(json, path, "choice"), at("choice"));
  record.median_s = ReadMeasured(json, path, "median_s");
  return record;
}

Json CaseToJson(const kernels::ExecutionCase& measured) {
  return {{"rows", measured.rows},
          {"cols", measured.cols},
          {"batch", measured.batch},
          {"precision", NameOf(measured.precision)},
          {"form", NameOf(measured.form)},
          {"restart", measured.restart},
          {"iterations", measured.iterations}};
}

Json RecordToJson(const TuningRecord& record) {
  Json json = CaseToJson(record.measured);
  json["choice"] = Json::object();
  for (const kernels::ExecutionField& field : kernels::ExecutionFields()) {
    if (const int value = record.choice.*field.value; value != 0) {
      json["choice"][std::string(field.name)] = value;
    }
  }
  json["median_s"] = record.median_s;
  return json;
}

// Whether the record is of the case that `key` holds, as CaseToJson gives it.
bool IsOf(const Json& record, const Json& key) {
  return std::all_of(key.items().begin(), key.items().end(), [&record](const auto& item) {
    const Json* value = spec::Find(record, item.key());
    return value != nullptr && *value == item.value();
  });
}

}  // namespace

std::string TuningKey(const kernels::DeviceIdentity& device) {
  return device.name + "; " + std::to_string(device.threads) +
         (device.threads == 1 ? " thread; " : " threads; ") + device.libraries + "; dmuon " +
         DMUON_VERSION;
}

Json EmptyTuningRoot() { return {{"format", kTuningFormatName}, {"entries", Json::object()}}; }

void CheckTuningRoot(const Json& root) {
  const spec::KeyPath path;
  if (!root.is_object()) {
    spec::Refuse(path, Excerpt(root) + " is not an object");
  }
  if (const Json* format = spec::Find(root, "format");
      format == nullptr || *format != Json(kTuningFormatName)) {
    spec::Refuse(spec::KeyPath(path, "format"), (format == nullptr ? "missing" : Excerpt(*format)) +
                                                    std::string(", expected \"") +
                                                    std::string(kTuningFormatName) + "\"");
  }
  spec::CheckKeys(root, path, {"format", "entries"});
  if (const Json& entries = Need(root, path, "entries"); !entries.is_object()) {
    spec::Refuse(spec::KeyPath(path, "entries"), Excerpt(entries) + " is not an object");
  }
}

std::vector<std::string> TuningKeysOf(const Json& root) {
  std::vector<std::string> keys;
  for (const auto& [key, entry] : root.at("entries").items()) {
    keys.push_back(key);
  }
  return keys;
}

std::optional<TuningEntry> ReadTuningEntry(const Json& root, const std::string& key) {
  const spec::KeyPath root_path;
  const spec::KeyPath entries_path(root_path, "entries");
  const Json* json = spec::Find(root.at("entries"), key);
  if (json == nullptr) {
    return std::nullopt;
  }
  const spec::KeyPath path(entries_path, key);
  spec::CheckKeys(*json, path, {"device", "elementwise_bytes_per_s", "records"});
  if (!Need(*json, path, "device").is_object()) {
    spec::Refuse(spec::KeyPath(path, "device"), "is not an object");
  }
  TuningEntry entry;
  entry.elementwise_bytes_per_s = ReadMeasured(*json, path, "elementwise_bytes_per_s");
  const spec::KeyPath records_path(path, "records");
  const Json& records = Need(*json, path, "records");
  if (!records.is_array()) {
    spec::Refuse(records_path, Excerpt(records) + " is not a list");
  }
  for (size_t i = 0; i < records.size(); ++i) {
    entry.records.push_back(ReadTunedRecord(records[i], spec::KeyPath(records_path, i)));
  }
  return entry;
}

void MergeTuningEntry(const kernels::DeviceIdentity& device, const std::string& key,
                      const TuningEntry& measured, Json* root) {
  Json& entry = (*root)["entries"][key];
  if (entry.is_null()) {
    entry = {{"device",
              {{"kind", device.kind},
               {"name", device.name},
               {"threads", device.threads},
               {"libraries", device.libraries}}},
             {"records", Json::array()}};
  }
  entry["elementwise_bytes_per_s"] = measured.elementwise_bytes_per_s;
  Json& records = entry["records"];
  for (const TuningRecord& record : measured.records) {
    const Json measured_case = CaseToJson(record.measured);
    const auto same = std::find_if(records.begin(), records.end(),
                                   [&](const Json& known) { return IsOf(known, measured_case); });
    if (same == records.end()) {
      records.push_back(RecordToJson(record));
    } else {
      *same = RecordToJson(record);
    }
  }
}

}  // namespace dmuon::scheduler

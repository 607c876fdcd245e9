// dmuonctl tune: measures how this machine executes a spec's matrices fastest, into the cache that
// dmuond and the planner read.
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <optional>

#include "client/cli/command.h"
#include "client/cli/progress.h"
#include "client/cli/text_file.h"
#include "client/cli/tune_cases.h"
#include "kernels/resident_batch.h"
#include "scheduler/tuning_cache.h"

namespace dmuon::cli {
namespace {

constexpr int64_t kLargestBatch = 1 << 20;

struct TuneOptions {
  std::string spec;
  std::string cache = "dmuon-tuning.json";
  std::string device = "cpu";
  int threads = 0;
  TuneCaseOptions cases;
  bool again = false;
};

// One line of the final table.
struct Row {
  scheduler::TuningRecord record;
  std::optional<double> default_s;  // none: kept from an earlier run
};

std::unique_ptr<kernels::Device> MakeDevice(const TuneOptions& options) {
  if (options.device == "cpu") {
    return kernels::MakeCpuDevice({options.threads});
  }
  constexpr std::string_view kPrefix = "cuda:";
  const std::string_view name = options.device;
  int ordinal = -1;
  const char* end = name.data() + name.size();
  if (name.starts_with(kPrefix) &&
      std::from_chars(name.data() + kPrefix.size(), end, ordinal).ptr == end && ordinal >= 0) {
    try {
      return kernels::MakeCudaDevice({.ordinal = ordinal});
    } catch (const std::runtime_error& error) {
      throw InputError(std::string("--device ") + error.what());
    }
  }
  throw InputError("--device: \"" + options.device + "\" is not cpu or cuda:N");
}

std::string NumericsText(const kernels::ExecutionCase& measured) {
  std::string text(NameOf(measured.precision));
  text.append(" ").append(NameOf(measured.form));
  if (measured.form == kernels::Form::kGram) {
    text += " [";
    for (const int iteration : measured.restart) {
      text.append(text.back() == '[' ? "" : ",").append(std::to_string(iteration));
    }
    text += "]";
  }
  return text;
}

std::string ShapeText(const kernels::ExecutionCase& measured) {
  return std::to_string(measured.rows) + "x" + std::to_string(measured.cols);
}

std::string CaseText(const kernels::ExecutionCase& measured) {
  return ShapeText(measured) + " batch " + std::to_string(measured.batch) + " " +
         NumericsText(measured);
}

// "1.24x": how many times faster than the default.
std::string GainText(const Row& row) {
  if (!row.default_s) {
    return "kept";
  }
  char text[32];
  std::snprintf(text, sizeof(text), "%.2fx", *row.default_s / row.record.median_s);
  return text;
}

void PrintTable(const std::vector<Row>& rows) {
  std::printf("%-14s %6s  %-16s %12s %6s  %s\n", "shape", "batch", "numerics", "ms", "gain",
              "choice");
  for (const Row& row : rows) {
    const kernels::ExecutionCase& measured = row.record.measured;
    std::printf("%-14s %6" PRId64 "  %-16s %12.3f %6s  %s\n", ShapeText(measured).c_str(),
                measured.batch, NumericsText(measured).c_str(), row.record.median_s * 1e3,
                GainText(row).c_str(), TextOf(row.record.choice).c_str());
  }
}

// Of this machine, for what wants to use it; unknown where the system does not say.
std::optional<int64_t> AvailableMemory() {
  std::ifstream info("/proc/meminfo");
  std::string key;
  for (int64_t kilobytes = 0; info >> key >> kilobytes; info.ignore(64, '\n')) {
    if (key == "MemAvailable:") {
      return kilobytes << 10;
    }
  }
  return std::nullopt;
}

// Takes out what would not fit the machine beside others, saying so.
void DropTooLarge(const TuneOptions& options, std::vector<kernels::TuningCase>* cases) {
  const std::optional<int64_t> memory = AvailableMemory();
  if (options.device != "cpu" || !memory) {
    return;
  }
  std::erase_if(*cases, [&](const kernels::TuningCase& wanted) {
    const int64_t bytes = kernels::ResidentBatch::BytesFor(wanted.rows, wanted.cols, wanted.batch);
    if (bytes <= *memory / 2) {
      return false;
    }
    std::fprintf(stderr,
                 "dmuonctl: %" PRId64 "x%" PRId64 " batch %" PRId64
                 " is left out: it takes %.1f GiB, more than half of the %.1f GiB that are free\n",
                 wanted.rows, wanted.cols, wanted.batch, static_cast<double>(bytes) / (1 << 30),
                 static_cast<double>(*memory) / (1 << 30));
    return true;
  });
  if (cases->empty()) {
    throw InputError("nothing to tune: no batch fits this machine's memory; try --batches 1");
  }
}

class TuneRun {
 public:
  TuneRun(const TuneOptions& options, kernels::Device& device,
          const std::vector<kernels::TuningCase>& cases)
      : cache_(options.cache),
        identity_(device.Identity()),
        cases_(cases),
        progress_(cases.size() + 1) {
    CheckCache();
    if (auto known = cache_.Read(identity_); known && !options.again) {
      known_ = std::move(*known);
    }
    kernels::TunerOptions tuner;
    tuner.warn = [this](const std::string& line) { progress_.Say("dmuonctl: " + line); };
    tuner_.emplace(device, tuner);
  }

  std::vector<Row> Run() {
    MeasureElementwise();
    std::vector<Row> rows;
    for (const kernels::TuningCase& wanted : cases_) {
      const kernels::ExecutionCase key = kernels::ExecutionCaseOf(
          wanted.rows, wanted.cols, wanted.batch, wanted.options.newton_schulz);
      progress_.Start(CaseText(key));
      const scheduler::TuningRecord* known = FindKnown(key);
      rows.push_back(known != nullptr ? Row{*known, std::nullopt} : Measure(wanted, key));
      char time[32];
      std::snprintf(time, sizeof(time), "%.3f ms, ", rows.back().record.median_s * 1e3);
      progress_.Finish(time + GainText(rows.back()) + ", " + TextOf(rows.back().record.choice));
    }
    return rows;
  }

 private:
  // Found out now rather than after the first measurement.
  void CheckCache() const {
    try {
      cache_.CheckWritable();
    } catch (const std::runtime_error& error) {
      throw InputError(std::string("--cache ") + error.what());
    }
  }

  const scheduler::TuningRecord* FindKnown(const kernels::ExecutionCase& key) const {
    for (const scheduler::TuningRecord& record : known_.records) {
      if (record.measured == key) {
        return &record;
      }
    }
    return nullptr;
  }

  void MeasureElementwise() {
    progress_.Start("adamw");
    const bool known = known_.elementwise_bytes_per_s > 0.0;
    if (!known) {
      known_.elementwise_bytes_per_s = tuner_->MeasureElementwise();
    }
    char rate[48];
    std::snprintf(rate, sizeof(rate), "%.2f GB/s%s", known_.elementwise_bytes_per_s / 1e9,
                  known ? ", kept" : "");
    progress_.Finish(rate);
  }

  Row Measure(const kernels::TuningCase& wanted, const kernels::ExecutionCase& key) {
    const kernels::TuningResult result = tuner_->Tune(wanted);
    const scheduler::TuningRecord record = {key, result.choice, result.median_s};
    cache_.Merge(identity_, {known_.elementwise_bytes_per_s, {record}});
    return {record, result.default_s};
  }

  scheduler::TuningCache cache_;
  kernels::DeviceIdentity identity_;
  const std::vector<kernels::TuningCase>& cases_;
  Progress progress_;
  scheduler::TuningEntry known_;
  std::optional<kernels::Tuner> tuner_;
};

int Tune(const TuneOptions& options) {
  const SessionSpec spec = ReadSpecFile(options.spec);
  const std::unique_ptr<kernels::Device> device = MakeDevice(options);
  std::vector<kernels::TuningCase> cases = TuningCasesOf(spec, *device, options.cases);
  DropTooLarge(options, &cases);
  std::vector<Row> rows;
  try {
    rows = TuneRun(options, *device, cases).Run();
  } catch (const scheduler::TuningCacheError& error) {
    throw InputError(std::string("--cache ") + error.what());
  }
  PrintTable(rows);
  std::printf("in %s under \"%s\"\n", options.cache.c_str(),
              scheduler::TuningKey(device->Identity()).c_str());
  return 0;
}

}  // namespace

void AddTuneCommand(CLI::App* app, Action* action) {
  auto options = std::make_shared<TuneOptions>();
  CLI::App* command = app->add_subcommand(
      "tune", "Measure how this machine runs a spec's matrices fastest; goes on where it was");
  command->add_option("--spec", options->spec, "session spec (JSON)")->required();
  command->add_option("--cache", options->cache, "file that keeps the measurements")
      ->capture_default_str();
  command->add_option("--device", options->device, "cpu or cuda:N")->capture_default_str();
  command
      ->add_option("--threads", options->threads, "of the cpu device, as owners have (all cores)")
      ->check(CLI::Range(0, 4096));
  command->add_option("--owners", options->cases.owners, "owners that share the matrices")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command
      ->add_option("--batches", options->cases.batches,
                   "batch sizes to measure, like 1,2,8 (1,2,4,... up to what an owner has)")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, kLargestBatch));
  command->add_flag("--again", options->again, "measure again what the cache has");
  command->callback([options, action] { *action = [options] { return Tune(*options); }; });
}

}  // namespace dmuon::cli

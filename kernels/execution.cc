#include "kernels/execution.h"

#include <algorithm>

#include "kernels/execution_fields.h"

namespace dmuon::kernels {

std::span<const ExecutionField> ExecutionFields() {
  static constexpr ExecutionField kFields[] = {{"symmetric_tile", &MuonExecution::symmetric_tile},
                                               {"product_tile", &MuonExecution::product_tile},
                                               {"sharing", &MuonExecution::sharing},
                                               {"part", &MuonExecution::part},
                                               {"lanes", &MuonExecution::lanes}};
  return kFields;
}

std::string TextOf(const MuonExecution& execution) {
  std::string text;
  for (const ExecutionField& field : ExecutionFields()) {
    if (const int value = execution.*field.value; value != 0) {
      text.append(text.empty() ? "" : ", ").append(field.name).append(" ");
      text.append(std::to_string(value));
    }
  }
  return text.empty() ? "default" : text;
}

ExecutionCase ExecutionCaseOf(int64_t rows, int64_t cols, int64_t batch,
                              const NewtonSchulzOptions& options) {
  return {rows,
          cols,
          batch,
          options.precision,
          options.form,
          options.restart,
          static_cast<int>(options.coefficients.size())};
}

void ExecutionTable::Set(const ExecutionCase& key, const MuonExecution& choice) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.first == key; });
  if (found == entries_.end()) {
    entries_.emplace_back(key, choice);
  } else {
    found->second = choice;
  }
}

MuonExecution ExecutionTable::Find(int64_t rows, int64_t cols, int64_t batch,
                                   const NewtonSchulzOptions& options) const {
  MuonExecution choice;
  int64_t nearest = 0;
  for (const auto& [key, execution] : entries_) {
    const bool fits = key.rows == rows && key.cols == cols && key.precision == options.precision &&
                      key.form == options.form && key.restart == options.restart &&
                      key.iterations == static_cast<int>(options.coefficients.size());
    if (fits && key.batch <= batch && key.batch > nearest) {
      nearest = key.batch;
      choice = execution;
    }
  }
  return choice;
}

}  // namespace dmuon::kernels

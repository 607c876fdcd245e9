#include "client/cli/replay_state.h"

#include <cstring>
#include <set>

#include "client/cli/command.h"
#include "kernels/half_types.h"

namespace dmuon::cli {
namespace {

using scheduler::StateTensor;

constexpr const char* kStepSuffix = ".step";

// One tensor of a state file.
struct StateEntry {
  std::string name;
  uint32_t parameter = 0;
  StateTensor tensor = StateTensor::kMaster;
  DType dtype = DType::kFloat32;
};

std::string SuffixOf(StateTensor tensor) {
  switch (tensor) {
    case StateTensor::kMaster:
      return ".master";
    case StateTensor::kMomentum:
      return ".momentum";
    case StateTensor::kExpAvg:
      return ".exp_avg";
    case StateTensor::kExpAvgSq:
      return ".exp_avg_sq";
  }
  return "";
}

// All entries but the step counts. An fp32 parameter is its own master.
std::vector<StateEntry> EntriesOf(ReplaySession* session) {
  std::vector<StateEntry> entries;
  for (uint32_t i = 0; i < session->spec().parameters.size(); ++i) {
    const ParameterSpec& parameter = session->spec().parameters[i];
    for (const StateTensor tensor : scheduler::OwnedState::TensorsOf(parameter.rule)) {
      if (tensor == StateTensor::kMaster && parameter.dtype == DType::kFloat32) {
        continue;
      }
      const uint32_t first = session->layout().PiecesOf(i).first;
      entries.push_back(
          {parameter.name + SuffixOf(tensor), i, tensor, session->state().TypeOf(first, tensor)});
    }
  }
  return entries;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t extent : shape) {
    text += (text.empty() ? "" : ", ") + std::to_string(extent);
  }
  return "[" + text + "]";
}

void CheckTensor(const std::string& path, const SafetensorsFile& file, const std::string& name,
                 DType dtype, const std::vector<int64_t>& shape) {
  const auto found = file.tensors().find(name);
  if (found == file.tensors().end()) {
    throw InputError(path + ": tensor '" + name + "' is missing; the spec calls for it");
  }
  const TensorInfo& tensor = found->second;
  if (tensor.dtype != dtype || tensor.shape != shape) {
    throw InputError(path + ": tensor '" + name + "' is " + std::string(NameOf(tensor.dtype)) +
                     " " + ShapeText(tensor.shape) + ", but the spec calls for " +
                     std::string(NameOf(dtype)) + " " + ShapeText(shape));
  }
}

[[noreturn]] void RefuseTensor(const std::string& path, const std::string& name) {
  throw InputError(path + ": the spec does not call for tensor '" + name + "'");
}

void CheckNothingElse(const std::string& path, const SafetensorsFile& file,
                      const std::set<std::string>& expected) {
  for (const auto& [name, tensor] : file.tensors()) {
    if (expected.count(name) == 0) {
      RefuseTensor(path, name);
    }
  }
}

void WidenInto(DType dtype, const std::byte* data, size_t count, float* wide) {
  if (dtype == DType::kFloat32) {
    std::memcpy(wide, data, count * sizeof(float));
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, data + i * sizeof(bits), sizeof(bits));
    wide[i] = dtype == DType::kBFloat16 ? kernels::FloatFromBFloat16(bits)
                                        : kernels::FloatFromFloat16(bits);
  }
}

// A buffer for one piece of the largest element type.
std::vector<std::byte> PieceBuffer(const scheduler::Piece& piece) {
  return std::vector<std::byte>(static_cast<size_t>(piece.geometry.elements()) * sizeof(float));
}

SafetensorsFile OpenInput(const std::string& path) {
  try {
    return SafetensorsFile(path);
  } catch (const std::runtime_error& error) {
    throw InputError(error.what());
  }
}

void LoadStepCount(const std::string& path, const SafetensorsFile& file, uint32_t parameter,
                   ReplaySession* session) {
  const std::string name = session->spec().parameters[parameter].name + kStepSuffix;
  CheckTensor(path, file, name, DType::kInt64, {});
  int64_t count = 0;
  std::memcpy(&count, file.data(name).data(), sizeof(count));
  if (count < 0) {
    throw InputError(path + ": tensor '" + name + "' is " + std::to_string(count) +
                     "; a count of steps is >= 0");
  }
  const auto [first, last] = session->layout().PiecesOf(parameter);
  for (uint32_t piece = first; piece < last; ++piece) {
    session->state().SetStepCount(piece, count);
  }
}

// A file to be written: what owns the bytes, and what describes them.
class TensorList {
 public:
  // A tensor of `count` elements of `dtype`, to be filled through the returned pointer.
  std::byte* Add(std::string name, DType dtype, std::vector<int64_t> shape, int64_t count) {
    storage_.emplace_back(static_cast<size_t>(count * SizeOf(dtype)));
    tensors_.push_back({std::move(name), dtype, std::move(shape), storage_.back()});
    return storage_.back().data();
  }
  void Write(const std::string& path) const { WriteSafetensors(path, tensors_); }

 private:
  std::vector<std::vector<std::byte>> storage_;
  std::vector<TensorToWrite> tensors_;
};

}  // namespace

void LoadParameters(const std::string& path, ReplaySession* session) {
  const SafetensorsFile file = OpenInput(path);
  for (const auto& [name, tensor] : file.tensors()) {
    session->ParameterIndex(path, name);
  }
  for (uint32_t i = 0; i < session->spec().parameters.size(); ++i) {
    const ParameterSpec& parameter = session->spec().parameters[i];
    CheckTensor(path, file, parameter.name, parameter.dtype, parameter.shape);
    const auto [first, last] = session->layout().PiecesOf(i);
    for (uint32_t piece = first; piece < last; ++piece) {
      std::vector<std::byte> narrow = PieceBuffer(session->plan().pieces[piece]);
      std::vector<float> wide(narrow.size() / sizeof(float));
      session->layout().Gather(piece, SizeOf(parameter.dtype), file.data(parameter.name).data(),
                               narrow.data());
      WidenInto(parameter.dtype, narrow.data(), wide.size(), wide.data());
      session->state().SetMaster(piece, wide.data());
    }
  }
}

void LoadState(const std::string& path, ReplaySession* session) {
  const SafetensorsFile file = OpenInput(path);
  std::set<std::string> expected;
  for (const StateEntry& entry : EntriesOf(session)) {
    const ParameterSpec& parameter = session->spec().parameters[entry.parameter];
    expected.insert(entry.name);
    CheckTensor(path, file, entry.name, entry.dtype, parameter.shape);
    const auto [first, last] = session->layout().PiecesOf(entry.parameter);
    for (uint32_t piece = first; piece < last; ++piece) {
      std::vector<std::byte> buffer = PieceBuffer(session->plan().pieces[piece]);
      session->layout().Gather(piece, SizeOf(entry.dtype), file.data(entry.name).data(),
                               buffer.data());
      session->state().CopyFromHost(piece, entry.tensor, buffer.data());
    }
  }
  for (uint32_t i = 0; i < session->spec().parameters.size(); ++i) {
    if (session->spec().parameters[i].rule == Rule::kAdamW) {
      expected.insert(session->spec().parameters[i].name + kStepSuffix);
      LoadStepCount(path, file, i, session);
    }
  }
  CheckNothingElse(path, file, expected);
}

void WriteParameters(const std::string& path, ReplaySession* session) {
  TensorList list;
  for (uint32_t i = 0; i < session->spec().parameters.size(); ++i) {
    const ParameterSpec& parameter = session->spec().parameters[i];
    std::byte* data =
        list.Add(parameter.name, parameter.dtype, parameter.shape, parameter.elements());
    const auto [first, last] = session->layout().PiecesOf(i);
    for (uint32_t piece = first; piece < last; ++piece) {
      std::vector<std::byte> buffer = PieceBuffer(session->plan().pieces[piece]);
      session->device().Publish(scheduler::ElementTypeOf(parameter.dtype),
                                session->state().master(piece),
                                session->plan().pieces[piece].geometry.elements(), buffer.data());
      session->layout().Scatter(piece, SizeOf(parameter.dtype), buffer.data(), data);
    }
  }
  list.Write(path);
}

void WriteState(const std::string& path, ReplaySession* session) {
  TensorList list;
  for (const StateEntry& entry : EntriesOf(session)) {
    const ParameterSpec& parameter = session->spec().parameters[entry.parameter];
    std::byte* data = list.Add(entry.name, entry.dtype, parameter.shape, parameter.elements());
    const auto [first, last] = session->layout().PiecesOf(entry.parameter);
    for (uint32_t piece = first; piece < last; ++piece) {
      std::vector<std::byte> buffer = PieceBuffer(session->plan().pieces[piece]);
      session->state().CopyToHost(piece, entry.tensor, buffer.data());
      session->layout().Scatter(piece, SizeOf(entry.dtype), buffer.data(), data);
    }
  }
  for (uint32_t i = 0; i < session->spec().parameters.size(); ++i) {
    const ParameterSpec& parameter = session->spec().parameters[i];
    if (parameter.rule == Rule::kAdamW) {
      const int64_t count = session->state().step_count(session->layout().PiecesOf(i).first);
      std::memcpy(list.Add(parameter.name + kStepSuffix, DType::kInt64, {}, 1), &count,
                  sizeof(count));
    }
  }
  list.Write(path);
}

}  // namespace dmuon::cli

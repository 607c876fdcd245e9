// The plan as bytes: "DMPL", a version byte, then LEB128 varints; doubles as 8 little-endian bytes.
//
//     owners, numerics table, pieces, buckets     what the hash covers
//     loads, makespan and the like                what a plan reports about itself
//
// A numerics table entry is written once however many pieces have it. Buckets list their pieces as
// differences. Everything is checked on the way in: the bytes cross a network.
#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>

#include "scheduler/byte_codec.h"
#include "scheduler/plan.h"
#include "scheduler/same_numerics.h"

namespace dmuon::scheduler {
namespace {

constexpr std::string_view kMagic = "DMPL\x02";
constexpr uint64_t kMaxOwners = 1 << 20;
constexpr uint64_t kMaxElements = uint64_t{1} << 42;
constexpr uint64_t kMaxBytes = uint64_t{1} << 52;

void WriteNumerics(const kernels::MuonOptions& options, ByteWriter* writer) {
  const kernels::NewtonSchulzOptions& newton_schulz = options.newton_schulz;
  writer->Enumerator(options.momentum_form);
  writer->Integer(options.nesterov ? 1 : 0);
  writer->Enumerator(options.scale);
  writer->Enumerator(options.momentum_type);
  writer->Enumerator(newton_schulz.normalize);
  writer->Real(newton_schulz.eps);
  writer->Enumerator(newton_schulz.form);
  writer->Enumerator(newton_schulz.precision);
  writer->Integer(newton_schulz.restart.size());
  for (const int iteration : newton_schulz.restart) {
    writer->Integer(static_cast<uint64_t>(iteration));
  }
  writer->Integer(newton_schulz.coefficients.size());
  for (const std::array<double, 3>& triple : newton_schulz.coefficients) {
    for (const double coefficient : triple) {
      writer->Real(coefficient);
    }
  }
}

kernels::MuonOptions ReadNumerics(ByteReader* reader) {
  kernels::MuonOptions options;
  kernels::NewtonSchulzOptions& newton_schulz = options.newton_schulz;
  options.momentum_form = reader->Enumerator(kernels::MomentumForm::kEma, "momentum form");
  options.nesterov = reader->Integer(1, "nesterov") == 1;
  options.scale = reader->Enumerator(kernels::UpdateScale::kNone, "scale");
  options.momentum_type = reader->Enumerator(kernels::ElementType::kFloat16, "momentum type");
  newton_schulz.normalize = reader->Enumerator(kernels::Normalize::kEpsMax, "normalize");
  newton_schulz.eps = reader->Real("eps");
  newton_schulz.form = reader->Enumerator(kernels::Form::kGram, "form");
  newton_schulz.precision = reader->Enumerator(kernels::ElementType::kFloat16, "precision");
  newton_schulz.restart.resize(reader->Count("restart count"));
  for (int& iteration : newton_schulz.restart) {
    iteration = static_cast<int>(reader->Integer(INT32_MAX, "restart"));
  }
  newton_schulz.coefficients.resize(reader->Count("coefficient count"));
  for (std::array<double, 3>& triple : newton_schulz.coefficients) {
    for (double& coefficient : triple) {
      coefficient = reader->Real("coefficient");
    }
  }
  return options;
}

struct NumericsLess {
  bool operator()(const kernels::MuonOptions* a, const kernels::MuonOptions* b) const {
    return KeyOf(*a) < KeyOf(*b);
  }
};
// Distinct numerics, numbered from 1 in the order of first use; 0 stands for an elementwise piece.
using NumericsTable = std::map<const kernels::MuonOptions*, uint64_t, NumericsLess>;

NumericsTable WriteNumericsTable(const Plan& plan, ByteWriter* writer) {
  NumericsTable table;
  std::vector<const kernels::MuonOptions*> entries;
  for (const Piece& piece : plan.pieces) {
    if (piece.rule == Rule::kMuon && table.try_emplace(&piece.muon, entries.size() + 1).second) {
      entries.push_back(&piece.muon);
    }
  }
  writer->Integer(entries.size());
  for (const kernels::MuonOptions* entry : entries) {
    WriteNumerics(*entry, writer);
  }
  return table;
}

void WritePieces(const Plan& plan, ByteWriter* writer) {
  const NumericsTable table = WriteNumericsTable(plan, writer);
  writer->Integer(plan.pieces.size());
  uint32_t previous = 0;
  for (const Piece& piece : plan.pieces) {
    writer->Integer(piece.parameter - previous);
    previous = piece.parameter;
    writer->Integer(piece.group);
    writer->Integer(piece.rule == Rule::kMuon ? table.at(&piece.muon) : 0);
    writer->Integer(static_cast<uint64_t>(piece.geometry.base));
    writer->Integer(static_cast<uint64_t>(piece.geometry.rows));
    writer->Integer(static_cast<uint64_t>(piece.geometry.cols));
    writer->Integer(static_cast<uint64_t>(piece.geometry.row_stride - piece.geometry.cols));
    writer->Integer(piece.owners.front());
  }
}

void WriteBuckets(const Plan& plan, ByteWriter* writer) {
  writer->Integer(plan.buckets.size());
  for (const PlanBucket& bucket : plan.buckets) {
    writer->Integer(bucket.owner);
    writer->Integer(bucket.pieces.size());
    uint32_t previous = 0;
    for (const uint32_t piece : bucket.pieces) {
      writer->Integer(piece - previous);
      previous = piece;
    }
  }
}

std::string AgreedBytes(const Plan& plan) {
  ByteWriter writer;
  writer.Raw(kMagic);
  writer.Integer(static_cast<uint64_t>(plan.owners));
  WritePieces(plan, &writer);
  WriteBuckets(plan, &writer);
  return writer.bytes();
}

StridedMatrix ReadGeometry(ByteReader* reader) {
  StridedMatrix geometry;
  geometry.base = static_cast<int64_t>(reader->Integer(kMaxElements, "piece base"));
  geometry.rows = static_cast<int64_t>(reader->Integer(kMaxElements, "piece rows"));
  geometry.cols = static_cast<int64_t>(reader->Integer(kMaxElements, "piece columns"));
  geometry.row_stride =
      geometry.cols + static_cast<int64_t>(reader->Integer(kMaxElements, "piece stride"));
  const auto max_elements = static_cast<int64_t>(kMaxElements);
  if (geometry.rows < 1 || geometry.cols < 1 || geometry.rows > max_elements / geometry.cols) {
    ByteReader::Refuse("a piece of " + std::to_string(geometry.rows) + " x " +
                       std::to_string(geometry.cols));
  }
  return geometry;
}

void ReadPieces(ByteReader* reader, Plan* plan) {
  std::vector<kernels::MuonOptions> numerics(reader->Count("numerics count"));
  for (kernels::MuonOptions& entry : numerics) {
    entry = ReadNumerics(reader);
  }
  plan->pieces.resize(reader->Count("piece count"));
  uint64_t parameter = 0;
  for (Piece& piece : plan->pieces) {
    parameter += reader->Integer(UINT32_MAX, "parameter");
    if (parameter > UINT32_MAX) {
      ByteReader::Refuse("parameter number " + std::to_string(parameter));
    }
    piece.parameter = static_cast<uint32_t>(parameter);
    piece.group = static_cast<uint32_t>(reader->Integer(UINT32_MAX, "group"));
    const uint64_t entry = reader->Integer(numerics.size(), "numerics");
    piece.rule = entry == 0 ? Rule::kAdamW : Rule::kMuon;
    if (entry > 0) {
      piece.muon = numerics[entry - 1];
    }
    piece.geometry = ReadGeometry(reader);
    piece.owners = {
        static_cast<uint32_t>(reader->Integer(static_cast<uint64_t>(plan->owners) - 1, "owner"))};
  }
}

// Every piece in exactly one bucket, which is its owner's.
void ReadBuckets(ByteReader* reader, Plan* plan) {
  std::vector<bool> seen(plan->pieces.size(), false);
  plan->buckets.resize(reader->Count("bucket count"));
  for (PlanBucket& bucket : plan->buckets) {
    bucket.owner = static_cast<uint32_t>(
        reader->Integer(static_cast<uint64_t>(plan->owners) - 1, "bucket owner"));
    bucket.pieces.resize(reader->Count("bucket size"));
    uint64_t piece = 0;
    for (uint32_t& entry : bucket.pieces) {
      piece += reader->Integer(plan->pieces.size(), "piece number");
      if (piece >= plan->pieces.size() || seen[piece] ||
          plan->pieces[piece].owners.front() != bucket.owner) {
        ByteReader::Refuse("piece " + std::to_string(piece) + " is in the wrong bucket");
      }
      seen[piece] = true;
      entry = static_cast<uint32_t>(piece);
    }
  }
  if (std::find(seen.begin(), seen.end(), false) != seen.end()) {
    ByteReader::Refuse("a piece is in no bucket");
  }
}

}  // namespace

std::string PlanHash(const Plan& plan) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char byte : AgreedBytes(plan)) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  }
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

namespace {

void WriteReport(const Plan& plan, ByteWriter* writer) {
  for (const OwnerLoad& load : plan.loads) {
    writer->Real(load.muon_seconds);
    writer->Real(load.elementwise_seconds);
    writer->Real(load.communication_seconds);
    writer->Integer(load.matrices);
    writer->Integer(load.elements);
    writer->Integer(static_cast<uint64_t>(load.bytes.gradients));
    writer->Integer(static_cast<uint64_t>(load.bytes.masters));
    writer->Integer(static_cast<uint64_t>(load.bytes.moments));
    writer->Integer(static_cast<uint64_t>(load.bytes.buckets));
  }
  writer->Real(plan.makespan);
  writer->Real(plan.lower_bound);
  writer->Real(plan.greedy_makespan);
  writer->Integer(plan.stopped_by_clock ? 1 : 0);
  writer->Text(plan.profile);
  writer->Integer(plan.guesses.size());
  for (const std::string& guess : plan.guesses) {
    writer->Text(guess);
  }
}

OwnerLoad ReadLoad(ByteReader* reader) {
  const auto bytes = [reader] {
    return static_cast<int64_t>(reader->Integer(kMaxBytes, "load bytes"));
  };
  OwnerLoad load;
  load.muon_seconds = reader->Real("load");
  load.elementwise_seconds = reader->Real("load");
  load.communication_seconds = reader->Real("load");
  load.matrices = reader->Integer(kMaxElements, "load matrices");
  load.elements = reader->Integer(kMaxElements, "load elements");
  load.bytes.gradients = bytes();
  load.bytes.masters = bytes();
  load.bytes.moments = bytes();
  load.bytes.buckets = bytes();
  return load;
}

void ReadReport(ByteReader* reader, Plan* plan) {
  for (int owner = 0; owner < plan->owners; ++owner) {
    plan->loads.push_back(ReadLoad(reader));
  }
  plan->makespan = reader->Real("makespan");
  plan->lower_bound = reader->Real("lower bound");
  plan->greedy_makespan = reader->Real("greedy makespan");
  plan->stopped_by_clock = reader->Integer(1, "stopped by clock") == 1;
  plan->profile = reader->Text("profile");
  plan->guesses.resize(reader->Count("guess count"));
  for (std::string& guess : plan->guesses) {
    guess = reader->Text("guess");
  }
}

}  // namespace

std::string SerializePlan(const Plan& plan) {
  ByteWriter report;
  WriteReport(plan, &report);
  return AgreedBytes(plan) + report.bytes();
}

Plan ParsePlan(const std::string& bytes) {
  ByteReader reader(bytes);
  reader.Expect(kMagic);
  Plan plan;
  plan.owners = static_cast<int>(reader.Integer(kMaxOwners, "owner count"));
  if (plan.owners < 1) {
    ByteReader::Refuse("a plan for no owners");
  }
  ReadPieces(&reader, &plan);
  ReadBuckets(&reader, &plan);
  ReadReport(&reader, &plan);
  reader.End();
  return plan;
}

}  // namespace dmuon::scheduler

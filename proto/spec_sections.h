// The parts of a session spec, each read by its own file. Internal to proto/.
#pragma once

#include "proto/session_spec.h"
#include "proto/spec_reader.h"

namespace dmuon::spec {

inline constexpr size_t kMaxNameBytes = 1024;
inline constexpr size_t kMaxDimensions = 8;
inline constexpr size_t kMaxGroups = 4096;
inline constexpr size_t kMaxParameters = 1'000'000;
inline constexpr int64_t kMaxParameterElements = int64_t{1} << 39;
inline constexpr int64_t kMaxSessionElements = int64_t{1} << 42;
inline constexpr int64_t kMaxSessionMatrices = int64_t{1} << 22;
inline constexpr int64_t kMaxMatrixSide = 65536;  // of the shorter side: NS works on its square

// All groups, sorted by name; "muon" and "adamw" are always there.
std::vector<GroupSpec> ReadGroups(const Json* groups, const KeyPath& path,
                                  const MuonSettings& preset);

// All parameters in canonical order.
std::vector<ParameterSpec> ReadParameters(const Json* parameters, const KeyPath& path,
                                          const std::vector<GroupSpec>& groups);

// Reads `view` (null: not given), checks it against shape and rule, and writes what means the same
// the same way: no split into one part, no flatten of what has two dimensions.
View ReadView(const Json* view, const KeyPath& path, const std::vector<int64_t>& shape, Rule rule);

}  // namespace dmuon::spec

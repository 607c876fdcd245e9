// Parameters and optimizer state of a replay, from and to safetensors files.
#pragma once

#include <string>

#include "client/cli/replay_session.h"

namespace dmuon::cli {

// Every parameter of the spec, in its shape and dtype, and nothing else. Throws InputError.
void LoadParameters(const std::string& path, ReplaySession* session);

// Every state tensor of the spec's parameters and nothing else: NAME.momentum (muon), NAME.exp_avg,
// NAME.exp_avg_sq, NAME.step (adamw), NAME.master where the dtype is narrower than fp32. A master
// replaces what LoadParameters read. Throws InputError.
void LoadState(const std::string& path, ReplaySession* session);

void WriteParameters(const std::string& path, ReplaySession* session);
void WriteState(const std::string& path, ReplaySession* session);

}  // namespace dmuon::cli

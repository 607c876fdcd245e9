// The pieces of a spec and what each takes of an owner. Internal to scheduler/.
#pragma once

#include <vector>

#include "scheduler/plan.h"

namespace dmuon::scheduler {

// All pieces in canonical order, numerics resolved, without owners.
std::vector<Piece> MakePieces(const SessionSpec& spec, const PlanOptions& options);

OwnerBytes BytesOf(const SessionSpec& spec, const Piece& piece);

// Its gradient in and its parameters out, over a link of `bytes_per_s` each way, one after the
// other as in a step. 0 without a link.
double CommunicationSeconds(const SessionSpec& spec, const Piece& piece, double bytes_per_s);

}  // namespace dmuon::scheduler

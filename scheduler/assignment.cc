#include "scheduler/assignment.h"

#include <algorithm>
#include <map>
#include <queue>
#include <stdexcept>

#include "scheduler/pieces.h"
#include "scheduler/same_numerics.h"

namespace dmuon::scheduler {
namespace {

// Kinds are in the order of their keys, which no order of registration changes.
std::vector<std::vector<uint32_t>> MembersByKind(const SessionSpec& spec,
                                                 const std::vector<Piece>& pieces) {
  const auto less = [&spec](const Piece* a, const Piece* b) {
    const auto key = [&spec](const Piece* piece) {
      return std::tuple_cat(BatchKeyOf(*piece), std::tie(spec.parameters[piece->parameter].dtype));
    };
    return key(a) < key(b);
  };
  std::map<const Piece*, std::vector<uint32_t>, decltype(less)> by_key(less);
  for (uint32_t index = 0; index < pieces.size(); ++index) {
    if (pieces[index].rule == Rule::kMuon) {
      by_key[&pieces[index]].push_back(index);
    }
  }
  std::vector<std::vector<uint32_t>> members;
  members.reserve(by_key.size());
  for (auto& [key, indices] : by_key) {
    members.push_back(std::move(indices));
  }
  return members;
}

MatrixKind CostsOf(const Piece& piece, uint32_t count, const CostProfile& profile,
                   double communication_seconds) {
  MatrixKind kind;
  kind.count = count;
  kind.seconds.reserve(size_t{count} + 1);
  for (uint32_t k = 0; k <= count; ++k) {
    kind.seconds.push_back(
        profile.MuonSeconds(piece.geometry.rows, piece.geometry.cols, piece.muon.newton_schulz, k) +
        communication_seconds * k);
  }
  return kind;
}

void AddFiller(const SessionSpec& spec, const PlanOptions& options, const CostProfile& profile,
               const std::vector<Piece>& pieces, BalanceProblem* problem) {
  for (const Piece& piece : pieces) {
    if (piece.rule == Rule::kAdamW) {
      problem->filler_seconds +=
          profile.ElementwiseSeconds(kAdamWBytesPerElement *
                                     static_cast<double>(piece.geometry.elements())) +
          CommunicationSeconds(spec, piece, options.link_bytes_per_s);
      problem->filler_bytes += BytesOf(spec, piece).total();
    }
  }
}

void Add(const OwnerBytes& bytes, OwnerBytes* sum) {
  sum->gradients += bytes.gradients;
  sum->masters += bytes.masters;
  sum->moments += bytes.moments;
  sum->buckets += bytes.buckets;
}

// An owner's share of one kind, while it is dealt.
struct Share {
  uint32_t owner = 0;
  uint64_t quota = 0;
  uint64_t dealt = 0;
};

// Whose turn it is: the share that is least far along, then the owner that waits longest.
Share* NextShare(std::vector<Share>* shares, const std::vector<int64_t>& last_dealt) {
  Share* next = nullptr;
  for (Share& share : *shares) {
    if (share.dealt == share.quota) {
      continue;
    }
    if (next == nullptr) {
      next = &share;
      continue;
    }
    const uint64_t along = (2 * share.dealt + 1) * next->quota;
    const uint64_t next_along = (2 * next->dealt + 1) * share.quota;
    if (along < next_along ||
        (along == next_along && last_dealt[share.owner] < last_dealt[next->owner])) {
      next = &share;
    }
  }
  return next;
}

}  // namespace

PieceKinds KindsOf(const SessionSpec& spec, const PlanOptions& options, const CostProfile& profile,
                   const std::vector<Piece>& pieces) {
  PieceKinds kinds;
  kinds.problem.owners = static_cast<uint32_t>(options.owners);
  kinds.problem.memory_limit = options.memory_limit_bytes;
  kinds.members = MembersByKind(spec, pieces);
  for (const std::vector<uint32_t>& members : kinds.members) {
    const Piece& piece = pieces[members.front()];
    const double communication = CommunicationSeconds(spec, piece, options.link_bytes_per_s);
    MatrixKind kind = CostsOf(piece, static_cast<uint32_t>(members.size()), profile, communication);
    kind.bytes = BytesOf(spec, piece).total();
    kinds.problem.kinds.push_back(std::move(kind));
    kinds.communication_seconds.push_back(communication);
    std::string guess =
        profile.GuessAbout(piece.geometry.rows, piece.geometry.cols, piece.muon.newton_schulz);
    if (!guess.empty()) {
      kinds.guesses.push_back(std::move(guess));
    }
  }
  // Kinds that differ in what costs nothing, like their group, are guessed alike.
  kinds.guesses.erase(std::unique(kinds.guesses.begin(), kinds.guesses.end()), kinds.guesses.end());
  AddFiller(spec, options, profile, pieces, &kinds.problem);
  return kinds;
}

void PlaceMatrices(const PieceKinds& kinds, const std::vector<Pattern>& owners,
                   std::vector<Piece>* pieces) {
  std::vector<uint32_t> kind_of(pieces->size(), UINT32_MAX);
  std::vector<std::vector<Share>> shares(kinds.members.size());
  for (uint32_t kind = 0; kind < kinds.members.size(); ++kind) {
    for (const uint32_t piece : kinds.members[kind]) {
      kind_of[piece] = kind;
    }
    for (uint32_t owner = 0; owner < owners.size(); ++owner) {
      if (owners[owner][kind] > 0) {
        shares[kind].push_back({owner, owners[owner][kind]});
      }
    }
  }
  std::vector<int64_t> last_dealt(owners.size(), -1);
  for (uint32_t piece = 0; piece < pieces->size(); ++piece) {
    if (kind_of[piece] == UINT32_MAX) {
      continue;
    }
    Share* share = NextShare(&shares[kind_of[piece]], last_dealt);
    ++share->dealt;
    last_dealt[share->owner] = piece;
    (*pieces)[piece].owners = {share->owner};
  }
}

std::vector<OwnerLoad> MatrixLoads(const SessionSpec& spec, const PieceKinds& kinds,
                                   const std::vector<Piece>& pieces,
                                   const std::vector<Pattern>& owners) {
  std::vector<OwnerLoad> loads;
  for (const Pattern& pattern : owners) {
    OwnerLoad load;
    for (size_t kind = 0; kind < pattern.size(); ++kind) {
      const int64_t count = pattern[kind];
      const Piece& piece = pieces[kinds.members[kind].front()];
      const double communication = kinds.communication_seconds[kind] * static_cast<double>(count);
      load.muon_seconds += kinds.problem.kinds[kind].seconds[pattern[kind]] - communication;
      load.communication_seconds += communication;
      load.matrices += pattern[kind];
      load.elements += static_cast<uint64_t>(piece.geometry.elements() * count);
      const OwnerBytes one = BytesOf(spec, piece);
      Add({one.gradients * count, one.masters * count, one.moments * count, one.buckets * count},
          &load.bytes);
    }
    loads.push_back(load);
  }
  return loads;
}

void PlaceBlocks(const SessionSpec& spec, const PlanOptions& options, const CostProfile& profile,
                 std::vector<Piece>* pieces, std::vector<OwnerLoad>* loads) {
  struct Block {
    uint32_t piece = 0;
    double seconds = 0.0;
    double communication = 0.0;
  };
  std::vector<Block> blocks;
  for (uint32_t index = 0; index < pieces->size(); ++index) {
    const Piece& piece = (*pieces)[index];
    if (piece.rule == Rule::kAdamW) {
      blocks.push_back({index,
                        profile.ElementwiseSeconds(kAdamWBytesPerElement *
                                                   static_cast<double>(piece.geometry.elements())),
                        CommunicationSeconds(spec, piece, options.link_bytes_per_s)});
    }
  }
  std::stable_sort(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) {
    return a.seconds + a.communication > b.seconds + b.communication;
  });
  using Entry = std::pair<double, uint32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> least_loaded;
  for (uint32_t owner = 0; owner < loads->size(); ++owner) {
    least_loaded.emplace((*loads)[owner].seconds(), owner);
  }
  for (const Block& block : blocks) {
    Piece& piece = (*pieces)[block.piece];
    const OwnerBytes bytes = BytesOf(spec, piece);
    // An owner without room for a block has room for no later one of that size either.
    while (!least_loaded.empty() && options.memory_limit_bytes > 0 &&
           (*loads)[least_loaded.top().second].bytes.total() + bytes.total() >
               options.memory_limit_bytes) {
      least_loaded.pop();
    }
    if (least_loaded.empty()) {
      throw std::invalid_argument(
          "memory: the elementwise blocks find no room below the limit of " +
          std::to_string(options.memory_limit_bytes) + " bytes an owner; raise it");
    }
    const uint32_t owner = least_loaded.top().second;
    least_loaded.pop();
    OwnerLoad& load = (*loads)[owner];
    piece.owners = {owner};
    load.elementwise_seconds += block.seconds;
    load.communication_seconds += block.communication;
    load.elements += static_cast<uint64_t>(piece.geometry.elements());
    Add(bytes, &load.bytes);
    least_loaded.emplace(load.seconds(), owner);
  }
}

}  // namespace dmuon::scheduler

// Where the elements of a plan's pieces lie in whole parameters: copies between the two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "proto/region.h"
#include "scheduler/plan.h"

namespace dmuon::cli {

class PieceLayout {
 public:
  PieceLayout(const SessionSpec& spec, const scheduler::Plan& plan);

  // The pieces of a parameter are first .. last-1.
  std::pair<uint32_t, uint32_t> PiecesOf(uint32_t parameter) const {
    return {first_piece_[parameter], first_piece_[parameter + 1]};
  }
  // Elements of `element_bytes` each; `parameter` and `piece` point to their whole row-major
  // storage. Neither has to be aligned.
  void Gather(uint32_t piece_index, int64_t element_bytes, const std::byte* parameter,
              std::byte* piece) const;
  void Scatter(uint32_t piece_index, int64_t element_bytes, const std::byte* piece,
               std::byte* parameter) const;

 private:
  std::vector<uint32_t> first_piece_;   // by parameter, and one more
  std::vector<std::vector<Run>> runs_;  // by piece; Run::region counts in the parameter
};

}  // namespace dmuon::cli

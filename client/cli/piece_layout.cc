#include "client/cli/piece_layout.h"

#include <cstring>

namespace dmuon::cli {

PieceLayout::PieceLayout(const SessionSpec& spec, const scheduler::Plan& plan) {
  first_piece_.resize(spec.parameters.size() + 1, 0);
  for (const scheduler::Piece& piece : plan.pieces) {
    ++first_piece_[piece.parameter + 1];
    const std::vector<int64_t>& shape = spec.parameters[piece.parameter].shape;
    runs_.push_back(IntersectRuns(shape, Region::Whole(shape), piece.geometry));
  }
  for (size_t i = 1; i < first_piece_.size(); ++i) {
    first_piece_[i] += first_piece_[i - 1];
  }
}

void PieceLayout::Gather(uint32_t piece_index, int64_t element_bytes, const std::byte* parameter,
                         std::byte* piece) const {
  for (const Run& run : runs_[piece_index]) {
    std::memcpy(piece + run.piece * element_bytes, parameter + run.region * element_bytes,
                static_cast<size_t>(run.length * element_bytes));
  }
}

void PieceLayout::Scatter(uint32_t piece_index, int64_t element_bytes, const std::byte* piece,
                          std::byte* parameter) const {
  for (const Run& run : runs_[piece_index]) {
    std::memcpy(parameter + run.region * element_bytes, piece + run.piece * element_bytes,
                static_cast<size_t>(run.length * element_bytes));
  }
}

}  // namespace dmuon::cli

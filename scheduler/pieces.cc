#include "scheduler/pieces.h"

#include <algorithm>

namespace dmuon::scheduler {
namespace {

void AppendMuonPieces(const ParameterSpec& parameter, Piece piece, const MuonSettings& settings,
                      kernels::ElementType auto_precision, std::vector<Piece>* pieces) {
  for (const StridedMatrix& matrix : MatricesOf(parameter)) {
    if (matrix.rows != piece.geometry.rows || matrix.cols != piece.geometry.cols) {
      piece.muon = NumericsOf(settings, matrix.rows, matrix.cols, auto_precision);
    }
    piece.geometry = matrix;
    pieces->push_back(piece);
  }
}

void AppendBlocks(int64_t elements, int64_t block, Piece piece, std::vector<Piece>* pieces) {
  for (int64_t base = 0; base < elements; base += block) {
    const int64_t count = std::min(block, elements - base);
    piece.geometry = {base, 1, count, count};
    pieces->push_back(piece);
  }
}

int64_t TravellingBytes(const SessionSpec& spec, const Piece& piece) {
  return piece.geometry.elements() * SizeOf(spec.parameters[piece.parameter].dtype);
}

}  // namespace

std::vector<Piece> MakePieces(const SessionSpec& spec, const PlanOptions& options) {
  std::vector<Piece> pieces;
  for (uint32_t i = 0; i < spec.parameters.size(); ++i) {
    const ParameterSpec& parameter = spec.parameters[i];
    Piece piece;
    piece.parameter = i;
    piece.group = static_cast<uint32_t>(parameter.group);
    piece.rule = parameter.rule;
    if (parameter.rule == Rule::kMuon) {
      AppendMuonPieces(parameter, piece, spec.groups[piece.group].muon, options.auto_precision,
                       &pieces);
    } else {
      AppendBlocks(parameter.elements(), options.elementwise_block, piece, &pieces);
    }
  }
  return pieces;
}

// As OwnedState keeps them: one gradient, and two halves of every tensor.
OwnerBytes BytesOf(const SessionSpec& spec, const Piece& piece) {
  const int64_t elements = piece.geometry.elements();
  OwnerBytes bytes;
  bytes.gradients = 4 * elements;
  bytes.masters = int64_t{2} * 4 * elements;
  bytes.moments = piece.rule == Rule::kMuon ? 2 * SizeOf(piece.muon.momentum_type) * elements
                                            : int64_t{2} * 2 * 4 * elements;
  bytes.buckets = 2 * TravellingBytes(spec, piece);
  return bytes;
}

double CommunicationSeconds(const SessionSpec& spec, const Piece& piece, double bytes_per_s) {
  return bytes_per_s > 0.0 ? 2.0 * static_cast<double>(TravellingBytes(spec, piece)) / bytes_per_s
                           : 0.0;
}

}  // namespace dmuon::scheduler

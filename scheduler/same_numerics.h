// Whether two kernel options describe the same arithmetic, and whether two pieces make one batch.
// Internal to scheduler/.
#pragma once

#include <tuple>

#include "scheduler/plan.h"

namespace dmuon::scheduler {

// Everything in `options`, comparable.
inline auto KeyOf(const kernels::MuonOptions& options) {
  const kernels::NewtonSchulzOptions& newton_schulz = options.newton_schulz;
  return std::tie(options.momentum_form, options.nesterov, options.scale, options.momentum_type,
                  newton_schulz.normalize, newton_schulz.eps, newton_schulz.form,
                  newton_schulz.precision, newton_schulz.restart, newton_schulz.coefficients);
}

// Equal for Muon pieces that are one batch where they are on one owner.
inline auto BatchKeyOf(const Piece& piece) {
  return std::tuple_cat(std::tie(piece.group, piece.geometry.rows, piece.geometry.cols),
                        KeyOf(piece.muon));
}

}  // namespace dmuon::scheduler

// Whether two kernel options describe the same arithmetic, and with which values they do. Internal
// to scheduler/.
#pragma once

#include <tuple>

#include "kernels/device.h"

namespace dmuon::scheduler {

// Everything in `options`, comparable.
inline auto KeyOf(const kernels::MuonOptions& options) {
  const kernels::NewtonSchulzOptions& newton_schulz = options.newton_schulz;
  return std::tie(options.momentum_form, options.nesterov, options.scale, options.momentum_type,
                  newton_schulz.normalize, newton_schulz.eps, newton_schulz.form,
                  newton_schulz.precision, newton_schulz.restart, newton_schulz.coefficients);
}

}  // namespace dmuon::scheduler

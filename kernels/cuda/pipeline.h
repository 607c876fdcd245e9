// The order of work that has two halves.
#pragma once

#include <cstdint>

namespace dmuon::kernels::cuda {

// Calls queue(i) and finish(i) once for each piece, each in order, finish(i) after queue(i): at
// most `slots` pieces are queued and not finished, and as many as that while there are more.
template <typename Queue, typename Finish>
void RunPipelined(int64_t pieces, int64_t slots, Queue&& queue, Finish&& finish) {
  for (int64_t i = 0; i < pieces + slots - 1; ++i) {
    if (i < pieces) {
      queue(i);
    }
    if (i >= slots - 1) {
      finish(i - (slots - 1));
    }
  }
}

}  // namespace dmuon::kernels::cuda

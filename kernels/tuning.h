// The autotuner: which way of executing a Muon step is the fastest on a device, measured.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/accuracy/rule.h"
#include "kernels/device.h"

namespace dmuon::kernels {

class ResidentBatch;

struct TunerOptions {
  int runs = 5;               // timed runs of a candidate, at least
  double least_time_s = 0.2;  // that the timed runs of each candidate take together; 101 at most
  // A candidate whose best run of the first one, then two, takes this many times the best run of
  // all is given up.
  double hopeless = 1.4;
  // The default stays unless another is faster by more than this part: about what medians of the
  // same code differ by. The best candidate has to be so in a second series of runs against the
  // default, pair by pair: in their median, and faster in three pairs of four.
  double noise = 0.03;
  std::function<double()> clock;                 // seconds; empty: the steady clock
  std::function<void(const std::string&)> warn;  // one line each; empty: nobody is told
};

// What is measured: one batch of matrices of one shape.
struct TuningCase {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t batch = 1;
  MuonOptions options;
};

struct TuningResult {
  struct Candidate {
    MuonExecution choice;
    double median_s = 0.0;  // of all its runs: one or two if it was given up
    int runs = 0;
  };
  struct Discarded {
    MuonExecution choice;
    std::string why;
  };

  MuonExecution choice;
  double median_s = 0.0;
  double default_s = 0.0;
  std::vector<Candidate> measured;  // the default first
  std::vector<Discarded> discarded;
};

// Works on one device, whose own tuning it replaces; in between and afterwards that is empty.
class Tuner {
 public:
  // `device` outlives the tuner.
  Tuner(Device& device, TunerOptions options);

  // Of all candidates of the device, those that give the default's bits (unless the device does not
  // promise bits) and keep the accuracy rule
  // on every input class are timed in alternation, warm; the fastest median wins. The others are
  // discarded with a warning that names candidate, class, error and limit. Where the default itself
  // breaks the rule, so do the numerics that the case asks for: the warning says so and only the
  // default is timed. Throws what the device throws, and std::runtime_error if a step is not
  // finite.
  TuningResult Tune(const TuningCase& wanted);

  // Bytes that AdamW reads and writes per second, on arrays beyond the caches.
  double MeasureElementwise();

 private:
  struct Contender {
    MuonExecution choice;
    std::vector<double> times_s;
    bool given_up = false;
  };

  // Empty if the candidate keeps the rule, else which class it breaks it on.
  std::string JudgeAccuracy(const TuningCase& wanted, const MuonExecution& choice);
  const std::vector<accuracy::JudgedInput>& JudgedInputsFor(const accuracy::Shape& shape,
                                                            const NewtonSchulzOptions& options);
  std::vector<MuonExecution> Accurate(const TuningCase& wanted, TuningResult* result);
  std::vector<Contender> SameBits(const TuningCase& wanted, ResidentBatch& batch,
                                  TuningResult* result);
  void Time(const TuningCase& wanted, ResidentBatch& batch, std::vector<Contender>& contenders);
  bool BeatsDefault(const TuningCase& wanted, ResidentBatch& batch, Contender& own,
                    Contender& challenger);
  double RunOnce(const TuningCase& wanted, ResidentBatch& batch, const MuonExecution& choice);
  void Discard(const TuningCase& wanted, const MuonExecution& choice, const std::string& why,
               TuningResult* result) const;
  void Warn(const std::string& line) const;

  Device& device_;
  TunerOptions options_;
  // What judged_ is for: batches of one shape follow each other.
  accuracy::Shape judged_shape_;
  NewtonSchulzOptions judged_options_;
  std::vector<accuracy::JudgedInput> judged_;
};

}  // namespace dmuon::kernels

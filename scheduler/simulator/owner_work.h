// What owners compute: buckets to reduce, batches to orthogonalise, blocks to update. Internal to
// scheduler/simulator/.
#pragma once

#include <vector>

#include "scheduler/simulator/optimizer.h"

namespace dmuon::simulator {

class OwnerWork {
 public:
  // `finished` runs whenever the last job that is known is done.
  OwnerWork(const Scene& scene, Action finished);

  // Every contribution to the bucket is at its owner, which reduces them. A batch starts when all
  // its pieces are reduced; with a gradient norm to agree on, when everything is.
  void Arrived(size_t bucket);

  bool done() const { return reductions_left_ == 0 && jobs_left_ == 0; }

 private:
  struct Job {
    int owner = 0;
    double seconds = 0.0;
    std::string label;
    size_t buckets_left = 0;  // that have pieces of it
  };

  void AddBatches(uint32_t owner);
  void AddBlocks(size_t bucket);
  void AddJob(Job job, const std::vector<uint32_t>& pieces);
  double ReductionSeconds(size_t bucket) const;
  void Reduced(size_t bucket);
  void Run(size_t job);

  Scene scene_;
  Action finished_;
  std::vector<Job> jobs_;
  std::vector<std::vector<size_t>> jobs_of_bucket_;
  std::vector<uint32_t> bucket_of_piece_;
  size_t reductions_left_ = 0;
  size_t jobs_left_ = 0;
  std::vector<size_t> waiting_;  // for the norm
};

}  // namespace dmuon::simulator

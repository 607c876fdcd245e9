// The steady state of the CPU device allocates nothing of ours: every malloc of the process is
// counted. In an executable of its own, because it replaces malloc. posix_memalign is counted
// apart: oneDNN's sgemm takes a workspace through it in each call and gives it back, and nothing of
// ours or of libstdc++ calls it.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "kernels/device.h"
#include "kernels/options.h"
#include "tests/kernels/reference.h"

namespace {

std::atomic<bool> g_counting{false};
std::atomic<int64_t> g_allocations{0};
std::atomic<int64_t> g_library_allocations{0};

void Count(std::atomic<int64_t>& counter) {
  if (g_counting.load(std::memory_order_relaxed)) {
    counter.fetch_add(1, std::memory_order_relaxed);
  }
}

void StartCounting() {
  g_allocations = 0;
  g_library_allocations = 0;
  g_counting = true;
}

}  // namespace

// glibc's own entry points: no look-up by name, which would allocate.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

void* malloc(size_t size) {
  Count(g_allocations);
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  Count(g_allocations);
  return __libc_calloc(count, size);
}
void* realloc(void* memory, size_t size) {
  Count(g_allocations);
  return __libc_realloc(memory, size);
}
void* memalign(size_t alignment, size_t size) {
  Count(g_allocations);
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void** memory, size_t alignment, size_t size) {
  Count(g_library_allocations);
  *memory = __libc_memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}
}

namespace dmuon::kernels {
namespace {

constexpr int kSteps = 100;
// A thread touches its stack and its buffers when it first gets work, which may be late; how far
// oneDNN's workspaces reach depends on which threads are in it at the same time. A leak of some
// kilobytes per step is still seen.
constexpr int64_t kResidentSlack_kb = 512;

// Exact, unlike statm, which lags by some pages per core. Not while counting.
int64_t ResidentKilobytes() {
  std::FILE* file = std::fopen("/proc/self/smaps_rollup", "r");
  char line[256];
  long resident = -1;
  while (file != nullptr && std::fgets(line, sizeof(line), file) != nullptr &&
         std::sscanf(line, "Rss: %ld kB", &resident) != 1) {
  }
  if (file != nullptr) {
    std::fclose(file);
  }
  return resident;
}

// A batch of matrices with its options.
struct MuonWork {
  MuonOptions options;
  int64_t rows;
  int64_t cols;
  std::vector<Buffer> buffers;
  std::vector<MuonMatrix> batch;
  std::unique_ptr<bool[]> finite;

  MuonWork(Device& device, int64_t rows, int64_t cols, int count, Form form, ElementType precision)
      : rows(rows), cols(cols), finite(std::make_unique<bool[]>(count)) {
    options.momentum_type = precision;
    options.newton_schulz.form = form;
    options.newton_schulz.precision = precision;
    options.newton_schulz.coefficients = testing::PolarExpress();
    if (form == Form::kGram) {
      options.newton_schulz.restart =
          DefaultRestart(rows, cols, precision, options.newton_schulz.coefficients);
    }
    for (int i = 0; i < count; ++i) {
      Buffer tensors[5];
      for (Buffer& tensor : tensors) {
        tensor = device.Allocate(rows * cols * static_cast<int64_t>(sizeof(float)));
      }
      for (int64_t j = 0; j < rows * cols; ++j) {
        tensors[0].floats()[j] = static_cast<float>((j * 37 + i) % 101 - 50) / 64.0F;
      }
      batch.push_back({tensors[0].floats(), tensors[1].floats(), tensors[2].data(),
                       tensors[3].floats(), tensors[4].data()});
      std::move(std::begin(tensors), std::end(tensors), std::back_inserter(buffers));
    }
  }

  bool Step(Device& device) {
    MuonValues values;
    values.lr = 0.02;
    values.momentum = 0.95;
    device.MuonStep(options, values, rows, cols, batch, {finite.get(), batch.size()});
    return finite[0];
  }
};

// What an owner does in a step: every kind of work, several shapes, both orientations.
class Workload {
 public:
  explicit Workload(Device& device) : device_(device) {
    std::vector<ElementType> precisions = {ElementType::kFloat32};
    if (device.AutoPrecision() != ElementType::kBFloat16) {
      // Emulated. In hardware it is oneDNN's primitives, which take a few blocks from malloc in
      // each call: not told apart from ours.
      precisions.push_back(ElementType::kBFloat16);
    }
    for (const ElementType precision : precisions) {
      for (const Form form : {Form::kDirect, Form::kGram}) {
        muon_.emplace_back(device, 64, 192, 3, form, precision);
        muon_.emplace_back(device, 192, 64, 2, form, precision);
        muon_.emplace_back(device, 96, 96, 1, form, precision);
        muon_.emplace_back(device, 130, 300, 1, form, precision);
      }
    }
    for (Buffer& vector : vectors_) {
      vector = device.Allocate(kCount * static_cast<int64_t>(sizeof(float)));
    }
  }

  void MultiplyMatrices() {
    for (MuonWork& work : muon_) {
      ASSERT_TRUE(work.Step(device_));
    }
  }

  void StreamVectors() {
    const auto floats = [&](int i) { return vectors_[i].floats(); };
    ASSERT_TRUE(device_.AdamWStep(
        {}, {kCount, floats(0), floats(1), floats(2), floats(3), floats(4), floats(5), floats(6)}));
    const ReduceSource sources[] = {{floats(1)}, {nullptr}, {floats(2)}, {floats(3)}, {floats(4)}};
    for (const ElementType type :
         {ElementType::kFloat32, ElementType::kBFloat16, ElementType::kFloat16}) {
      device_.Reduce(type, sources, kCount, 0.5F, floats(0));
      device_.Publish(type, floats(4), kCount, vectors_[7].data());
    }
    ASSERT_TRUE(device_.MeasureNorm(floats(0), kCount).finite);
  }

 private:
  static constexpr int64_t kCount = 300'000;

  Device& device_;
  std::vector<MuonWork> muon_;
  Buffer vectors_[8];
};

TEST(Allocation, TheCountSeesEveryKind) {
  void* placed = nullptr;
  StartCounting();
  void* kept[] = {std::malloc(1), std::calloc(1, 1), std::aligned_alloc(64, 64), ::operator new(1),
                  ::operator new (64, std::align_val_t{64})};
  const int failed = posix_memalign(&placed, 64, 64);
  g_counting = false;
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(g_allocations, 5);
  EXPECT_EQ(g_library_allocations, 1);
  std::free(placed);
  ::operator delete (kept[4], std::align_val_t{64});
  ::operator delete(kept[3]);
  std::free(kept[2]);
  std::free(kept[1]);
  std::free(kept[0]);
}

class SteadyState : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { ResidentKilobytes(); }  // its own pages

  std::unique_ptr<Device> device_ = MakeCpuDevice({GetParam()});
  Workload workload_{*device_};
};
INSTANTIATE_TEST_SUITE_P(Threads, SteadyState, ::testing::Values(1, 3));

TEST_P(SteadyState, MixedWorkAllocatesNothingOfOurs) {
  for (int warm_up = 0; warm_up < 2; ++warm_up) {
    workload_.MultiplyMatrices();
    workload_.StreamVectors();
  }
  const int64_t before_kb = ResidentKilobytes();
  StartCounting();
  for (int step = 0; step < kSteps; ++step) {
    workload_.MultiplyMatrices();
    workload_.StreamVectors();
  }
  g_counting = false;
  EXPECT_EQ(g_allocations, 0) << "in " << kSteps << " steps";
  EXPECT_LE(ResidentKilobytes() - before_kb, kResidentSlack_kb);
  RecordProperty("library_allocations_per_step", static_cast<int>(g_library_allocations / kSteps));
}

TEST_P(SteadyState, StreamsAllocateNothingAtAll) {
  workload_.StreamVectors();
  workload_.StreamVectors();
  const int64_t before_kb = ResidentKilobytes();
  StartCounting();
  for (int step = 0; step < kSteps; ++step) {
    workload_.StreamVectors();
  }
  g_counting = false;
  EXPECT_EQ(g_allocations + g_library_allocations, 0) << "in " << kSteps << " steps";
  EXPECT_LE(ResidentKilobytes() - before_kb, kResidentSlack_kb);
}

}  // namespace
}  // namespace dmuon::kernels

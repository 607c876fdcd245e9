#include "daemon/transport/bucket_pool.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace dmuon {
namespace {

TEST(BucketPool, GivesTheSameMemoryAgain) {
  BucketPool pool;
  auto first = pool.Take(640);
  EXPECT_EQ(first->bytes(), 640);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first->data()) % 64, 0U);
  BucketBuffer* address = first.get();
  auto second = pool.Take(640);
  EXPECT_NE(second.get(), address);  // that one is in use
  first.reset();
  EXPECT_NE(pool.Take(1280).get(), address);  // another size
  EXPECT_EQ(pool.Take(640).get(), address);
}

TEST(BucketPool, BuffersReturnWithTheirLastReference) {
  BucketPool pool;
  BucketPtr shared = pool.Take(640);
  BucketPtr other = shared;
  const BucketBuffer* address = shared.get();
  shared.reset();
  EXPECT_NE(pool.Take(640).get(), address);
  other.reset();
  EXPECT_EQ(pool.Take(640).get(), address);
}

// Whatever was in use when the pool was cleared, or went, is given back to the system: the address
// sanitizer would see it leak, or be used.
TEST(BucketPool, BuffersOutliveThePool) {
  std::shared_ptr<BucketBuffer> kept;
  {
    BucketPool pool;
    kept = pool.Take(64);
    pool.Clear();
    pool.Take(64);
  }
  kept->data()[63] = std::byte{1};
  kept.reset();
}

TEST(BucketPool, ThreadsNeverShareABuffer) {
  BucketPool pool;
  std::vector<std::thread> threads;
  std::vector<int> clashes(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 1000; ++i) {
        auto buffer = pool.Take(64);
        buffer->data()[0] = static_cast<std::byte>(t);
        std::this_thread::yield();
        clashes[t] += buffer->data()[0] != static_cast<std::byte>(t);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(clashes, std::vector<int>(4, 0));
}

}  // namespace
}  // namespace dmuon

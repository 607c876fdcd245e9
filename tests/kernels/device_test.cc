// Memory, reduction, norm and publishing on every backend.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "tests/kernels/backends.h"

namespace dmuon::kernels::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class DeviceTest : public BackendTest {
 protected:
  // Sources as fp32 values; an empty vector is an absent one.
  std::vector<float> ReduceFloats(const std::vector<std::vector<float>>& values, int64_t count,
                                  float factor) {
    std::vector<ReduceSource> sources;
    for (const std::vector<float>& source : values) {
      sources.push_back({source.empty() ? nullptr : source.data()});
    }
    const Buffer destination = Upload(*device_, std::vector<float>(count, 123.0F));
    device_->Reduce(ElementType::kFloat32, sources, count, factor, destination.floats());
    return Download(*device_, destination.floats(), count);
  }

  std::vector<uint16_t> PublishHalves(ElementType type, const std::vector<float>& values) {
    const Buffer data = Upload(*device_, values);
    std::vector<uint16_t> halves(values.size());
    device_->Publish(type, data.floats(), std::ssize(values), halves.data());
    return halves;
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, DeviceTest, ::testing::ValuesIn(Backends()), BackendName);

std::vector<float> Random(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) {
    value = normal(random);
  }
  return values;
}

// The canonical tree of one element, level by level as it is defined: neighbours are added, an odd
// last one moves up; where one of two is absent the other moves up.
float TreeSum(std::vector<std::pair<bool, float>> level) {
  while (level.size() > 1) {
    std::vector<std::pair<bool, float>> above;
    for (std::size_t i = 0; i < level.size(); i += 2) {
      if (i + 1 == level.size() || !level[i + 1].first) {
        above.push_back(level[i]);
      } else if (!level[i].first) {
        above.push_back(level[i + 1]);
      } else {
        above.emplace_back(true, level[i].second + level[i + 1].second);
      }
    }
    level = above;
  }
  return level[0].first ? level[0].second : 0.0F;
}

TEST_P(DeviceTest, AllocatesZeroedAlignedMemory) {
  for (const int64_t bytes : {0, 1, 100, 1 << 20}) {
    const Buffer buffer = device_->Allocate(bytes);
    EXPECT_EQ(buffer.bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0U);
    std::vector<char> host(bytes, 'x');
    device_->CopyToHost(host.data(), buffer.data(), bytes);
    EXPECT_EQ(host, std::vector<char>(bytes));
  }
  EXPECT_THROW(device_->Allocate(-1), std::bad_alloc);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they end the process instead
  EXPECT_THROW(device_->Allocate(int64_t{1} << 60), std::bad_alloc);
#endif
}

TEST_P(DeviceTest, BuffersMove) {
  Buffer a = Upload(*device_, {1, 2});
  void* data = a.data();
  Buffer b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(a.data(), nullptr);  // NOLINT(bugprone-use-after-move): the contract is tested
  b = Upload(*device_, {3});
  EXPECT_EQ(Download(*device_, b.floats(), 1), (std::vector<float>{3}));
}

TEST_P(DeviceTest, ReduceFollowsTheTree) {
  const int64_t count = 2500;
  for (int sources = 1; sources <= 17; ++sources) {
    for (const unsigned absent : {0U, 0x5U, 0x12cU, 0x1ffffU}) {
      std::vector<std::vector<float>> values;
      for (int s = 0; s < sources; ++s) {
        values.push_back((absent >> s & 1U) != 0 ? std::vector<float>() : Random(count, s));
      }
      const std::vector<float> result = ReduceFloats(values, count, 0.3F);
      for (int64_t i = 0; i < count; ++i) {
        std::vector<std::pair<bool, float>> level;
        for (const auto& source : values) {
          level.emplace_back(!source.empty(), source.empty() ? 0.0F : source[i]);
        }
        ASSERT_EQ(result[i], 0.3F * TreeSum(level)) << sources << " sources, element " << i;
      }
    }
  }
}

// The comparison above must notice a source that is not added, and another order.
TEST_P(DeviceTest, DroppedSourceIsNoticed) {
  const std::vector<float> a = Random(100, 1);
  const std::vector<float> b = Random(100, 2);
  const std::vector<float> c = Random(100, 3);
  EXPECT_NE(ReduceFloats({a, b, c}, 100, 1.0F), ReduceFloats({a, b, {}}, 100, 1.0F));
  EXPECT_NE(ReduceFloats({a, b, c}, 100, 1.0F), ReduceFloats({b, c, a}, 100, 1.0F));
  EXPECT_EQ(ReduceFloats({a, b, c}, 100, 1.0F), ReduceFloats({b, a, c}, 100, 1.0F));
}

TEST_P(DeviceTest, ReduceOfOneSourceIsThatSource) {
  const std::vector<float> values = {1.5F, -0.0F, 1e-42F, kInfinity, 3e38F};
  const std::vector<float> result = ReduceFloats({{}, values, {}}, 5, 1.0F);
  EXPECT_EQ(0, std::memcmp(result.data(), values.data(), 5 * sizeof(float)));
  EXPECT_TRUE(std::isnan(ReduceFloats({{kNan}}, 1, 1.0F)[0]));
  EXPECT_EQ(ReduceFloats({{}, {}}, 2, 1.0F), (std::vector<float>{0, 0}));
  EXPECT_EQ(ReduceFloats({}, 2, 1.0F), (std::vector<float>{0, 0}));
  EXPECT_EQ(ReduceFloats({{3e38F}, {3e38F}}, 1, 0.5F)[0], kInfinity);
}

TEST_P(DeviceTest, ReduceAddsHalvesInFloat32) {
  const Buffer destination = device_->Allocate(3 * sizeof(float));
  // bf16 256, 1, -2^-133; their sum 257 is not a bf16 number.
  const std::vector<uint16_t> a = {0x4380, 0x3f80, 0x8001};
  const std::vector<uint16_t> b = {0x3f80, 0x3f80, 0x0000};
  const ReduceSource bf16[] = {{a.data()}, {b.data()}};
  device_->Reduce(ElementType::kBFloat16, bf16, 3, 1.0F, destination.floats());
  EXPECT_EQ(Download(*device_, destination.floats(), 3), (std::vector<float>{257, 2, -0x1p-133F}));
  // fp16 2048, 1, smallest subnormal; 2049 is not an fp16 number.
  const std::vector<uint16_t> c = {0x6800, 0x3c00, 0x0001};
  const std::vector<uint16_t> d = {0x3c00, 0xbc00, 0x0000};
  const ReduceSource fp16[] = {{c.data()}, {d.data()}};
  device_->Reduce(ElementType::kFloat16, fp16, 3, 1.0F, destination.floats());
  EXPECT_EQ(Download(*device_, destination.floats(), 3), (std::vector<float>{2049, 0, 0x1p-24F}));
}

TEST_P(DeviceTest, NormAddsBlocksInFloat64) {
  for (const int64_t count : {1, 5, 65535, 65536, 65537, 400000}) {
    const std::vector<float> values = Random(count, count);
    long double exact = 0.0;
    for (const float value : values) {
      exact += static_cast<long double>(value) * value;
    }
    const Buffer data = Upload(*device_, values);
    const NormAndFinite norm = device_->MeasureNorm(data.floats(), count);
    EXPECT_LE(std::fabs(norm.squared_sum - exact), 1e-13L * exact);
    EXPECT_TRUE(norm.finite);
  }
}

TEST_P(DeviceTest, NormBearsEveryFiniteValue) {
  const Buffer data = Upload(*device_, {3e38F, -3e38F, 1e-45F, 0.0F});
  const NormAndFinite norm = device_->MeasureNorm(data.floats(), 4);
  EXPECT_TRUE(norm.finite);
  const double value = 3e38F;
  EXPECT_DOUBLE_EQ(norm.squared_sum, 2 * value * value);
  const double tiny = 1e-45F;
  EXPECT_DOUBLE_EQ(device_->MeasureNorm(data.floats() + 2, 1).squared_sum, tiny * tiny);
  const NormAndFinite nothing = device_->MeasureNorm(nullptr, 0);
  EXPECT_EQ(nothing.squared_sum, 0.0);
  EXPECT_TRUE(nothing.finite);
}

TEST_P(DeviceTest, NormSeesWhatIsNotFinite) {
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    for (const int64_t position : {0, 65536, 69999}) {
      std::vector<float> values(70000, 1.0F);
      values[position] = bad;
      const Buffer data = Upload(*device_, values);
      EXPECT_FALSE(device_->MeasureNorm(data.floats(), 70000).finite);
    }
  }
}

TEST_P(DeviceTest, PublishRoundsToNearestEven) {
  // bf16: 1 + 2^-8 is a tie to even, 1 + 3 * 2^-8 a tie up, one step more than a tie goes up;
  // values beyond the largest become infinity; subnormals stay.
  const std::vector<float> values = {
      1.0F,      1.00390625F, 1.01171875F, std::nextafter(1.00390625F, 2.0F),
      -0.0F,     3.4e38F,     -3.4e38F,    0x1.fep127F,
      0x1p-133F, 0x1p-134F,   0x1.8p-133F, kInfinity};
  EXPECT_EQ(PublishHalves(ElementType::kBFloat16, values),
            (std::vector<uint16_t>{0x3f80, 0x3f80, 0x3f82, 0x3f81, 0x8000, 0x7f80, 0xff80, 0x7f7f,
                                   0x0001, 0x0000, 0x0002, 0x7f80}));
  const std::vector<float> fp16 = {1.0F,       1.00048828125F, 1.00146484375F, 65504.0F,
                                   65519.996F, 65520.0F,       -65520.0F,      0x1p-24F,
                                   0x1p-25F,   0x1.8p-24F,     0x1p-14F,       0x1.ff8p-15F};
  EXPECT_EQ(PublishHalves(ElementType::kFloat16, fp16),
            (std::vector<uint16_t>{0x3c00, 0x3c00, 0x3c02, 0x7bff, 0x7bff, 0x7c00, 0xfc00, 0x0001,
                                   0x0000, 0x0002, 0x0400, 0x03ff}));
}

// Every exponent, against rounding done with frexp.
TEST_P(DeviceTest, PublishAgreesWithTheDefinition) {
  std::vector<float> values;
  std::mt19937 random(3);
  for (uint32_t exponent = 0; exponent < 255; ++exponent) {
    for (int i = 0; i < 64; ++i) {
      uint32_t mantissa = random() & 0x7fffffU;
      if (i % 4 == 0) {
        mantissa = mantissa << 12 & 0x7fffffU;  // ties
      }
      const auto sign = static_cast<uint32_t>(random() & 0x80000000U);
      values.push_back(std::bit_cast<float>(sign | exponent << 23 | mantissa));
    }
  }
  for (const ElementType type : {ElementType::kBFloat16, ElementType::kFloat16}) {
    const std::vector<uint16_t> halves = PublishHalves(type, values);
    const Buffer back = device_->Allocate(std::ssize(values) * 4);
    const ReduceSource source{halves.data()};
    device_->Reduce(type, {&source, 1}, std::ssize(values), 1.0F, back.floats());
    const std::vector<float> result = Download(*device_, back.floats(), std::ssize(values));
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(result[i], static_cast<float>(RoundTo(type, values[i]))) << values[i];
    }
  }
}

TEST_P(DeviceTest, PublishKeepsNan) {
  // A NaN whose payload sits in the low bits only must not become infinity.
  const std::vector<float> values = {kNan, -kNan, std::bit_cast<float>(0x7f800001U),
                                     std::bit_cast<float>(0xffffffffU)};
  for (const uint16_t bits : PublishHalves(ElementType::kBFloat16, values)) {
    EXPECT_GT(bits & 0x7fff, 0x7f80);
  }
  for (const uint16_t bits : PublishHalves(ElementType::kFloat16, values)) {
    EXPECT_GT(bits & 0x7fff, 0x7c00);
  }
}

TEST_P(DeviceTest, PublishOfFloat32Copies) {
  const std::vector<float> values = Random(40000, 5);
  const Buffer data = Upload(*device_, values);
  std::vector<float> host(values.size());
  device_->Publish(ElementType::kFloat32, data.floats(), std::ssize(values), host.data());
  EXPECT_EQ(host, values);
}

// Case 22: eight updates of -2^-10 on a bf16 parameter with an fp32 master.
TEST_P(DeviceTest, MasterKeepsWhatBFloat16Loses) {
  float master = 1.0F;
  for (int i = 0; i < 8; ++i) {
    master -= 0x1p-10F;
  }
  EXPECT_EQ(PublishHalves(ElementType::kBFloat16, {master})[0], 0x3f7e);  // .9921875
}

TEST_P(DeviceTest, SaysWhatItIs) {
  EXPECT_FALSE(device_->Describe().empty());
  EXPECT_TRUE(device_->Supports(device_->AutoPrecision(), nullptr));
  EXPECT_TRUE(device_->Supports(ElementType::kFloat32, nullptr));
  EXPECT_TRUE(device_->Supports(ElementType::kBFloat16, nullptr));
}

}  // namespace
}  // namespace dmuon::kernels::testing

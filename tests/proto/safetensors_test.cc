#include "proto/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>

namespace dmuon {
namespace {

class Safetensors : public testing::Test {
 protected:
  void SetUp() override {
    directory_ =
        std::filesystem::temp_directory_path() / ("dmuon-safetensors-" + std::to_string(getpid()));
    std::filesystem::create_directories(directory_);
    path_ = directory_ / "t.safetensors";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void WriteBytes(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  void WriteHeader(const std::string& header, const std::string& data) {
    const uint64_t length = header.size();
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    WriteBytes(bytes + header + data);
  }
  std::string Refusal() {
    try {
      SafetensorsFile file(path_);
    } catch (const std::runtime_error& error) {
      const std::string message = error.what();
      EXPECT_EQ(message.find('\n'), std::string::npos);
      EXPECT_EQ(message.find(path_), 0U) << message;
      return message;
    }
    ADD_FAILURE() << "accepted";
    return "";
  }

  std::filesystem::path directory_;
  std::string path_;
};

// Byte for byte what the format's description says, written by hand.
TEST_F(Safetensors, ReadsAHandMadeFile) {
  WriteHeader(R"({"__metadata__":{"format":"pt"},)"
              R"("b":{"dtype":"F32","shape":[1,2],"data_offsets":[2,10]},)"
              R"("a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]}})",
              std::string("\x80\x3f\x00\x00\x80\x3f\x00\x00\x00\xc0", 10));
  const SafetensorsFile file(path_);
  ASSERT_EQ(file.tensors().size(), 2U);
  EXPECT_TRUE(file.contains("a"));
  EXPECT_FALSE(file.contains("__metadata__"));
  EXPECT_EQ(file.tensors().at("a").dtype, DType::kBFloat16);
  EXPECT_TRUE(file.tensors().at("a").shape.empty());
  float values[2];
  ASSERT_EQ(file.data("b").size(), sizeof(values));
  std::memcpy(values, file.data("b").data(), sizeof(values));
  EXPECT_EQ(values[0], 1.0F);
  EXPECT_EQ(values[1], -2.0F);
  EXPECT_THROW(file.data("c"), std::runtime_error);
}

TEST_F(Safetensors, WritesWhatItReads) {
  const std::vector<float> floats = {1, 2, 3, 4, 5, 6};
  const std::vector<int64_t> counts = {7};
  const std::vector<uint16_t> halves = {0x3c00, 0x4000};
  WriteSafetensors(path_,
                   {{"x", DType::kFloat32, {2, 3}, std::as_bytes(std::span(floats))},
                    {"n.step", DType::kInt64, {}, std::as_bytes(std::span(counts))},
                    {"h", DType::kFloat16, {2}, std::as_bytes(std::span(halves))},
                    {"none", DType::kFloat32, {0, 4}, {}}},
                   {{"made_by", "test"}});
  const SafetensorsFile file(path_);
  EXPECT_EQ(file.tensors().size(), 4U);
  EXPECT_EQ(file.tensors().at("x").shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(std::memcmp(file.data("x").data(), floats.data(), 24), 0);
  EXPECT_EQ(std::memcmp(file.data("n.step").data(), counts.data(), 8), 0);
  EXPECT_EQ(std::memcmp(file.data("h").data(), halves.data(), 4), 0);
  EXPECT_EQ(file.data("none").size(), 0U);
}

TEST_F(Safetensors, LeavesNoTemporaryFileBehind) {
  const std::vector<float> floats = {1};
  WriteSafetensors(path_, {{"x", DType::kFloat32, {1}, std::as_bytes(std::span(floats))}});
  EXPECT_THROW(
      WriteSafetensors(path_, {{"x", DType::kFloat32, {2}, std::as_bytes(std::span(floats))}}),
      std::runtime_error);
  EXPECT_THROW(WriteSafetensors(directory_ / "missing" / "x", {}), std::runtime_error);
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory_)) {
    ++files;
  }
  EXPECT_EQ(files, 1U);
  EXPECT_TRUE(SafetensorsFile(path_).contains("x"));  // the failed write left the old file alone
}

TEST_F(Safetensors, RefusesWhatIsNoFile) {
  EXPECT_NE(Refusal().find("cannot be opened"), std::string::npos);
  WriteBytes("");
  EXPECT_NE(Refusal().find("empty"), std::string::npos);
  WriteBytes("1234");
  EXPECT_NE(Refusal().find("truncated"), std::string::npos);
  WriteBytes(std::string(64, '\x7f'));
  EXPECT_NE(Refusal().find("not a safetensors file"), std::string::npos);
  path_ = directory_;
  EXPECT_NE(Refusal().find("not a regular file"), std::string::npos);
}

TEST_F(Safetensors, RefusesBadHeaders) {
  const std::string eight(8, '\0');
  WriteHeader("not json", eight);
  EXPECT_NE(Refusal().find("not JSON"), std::string::npos);
  WriteHeader("[]", eight);
  EXPECT_NE(Refusal().find("not a JSON object"), std::string::npos);
  WriteHeader(R"({"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})", eight);
  EXPECT_NE(Refusal().find("F64"), std::string::npos);
  WriteHeader(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})", eight);
  EXPECT_NE(Refusal().find("truncated"), std::string::npos);
  WriteHeader(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", eight);
  EXPECT_NE(Refusal().find("does not hold"), std::string::npos);
  WriteHeader(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", eight);
  EXPECT_NE(Refusal().find("4 bytes after"), std::string::npos);
  WriteHeader(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", eight);
  EXPECT_NE(Refusal().find("gap"), std::string::npos);
  WriteHeader(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
              R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
              eight);
  EXPECT_NE(Refusal().find("overlapping"), std::string::npos);
  WriteHeader(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
              R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
              eight);
  EXPECT_NE(Refusal().find("twice"), std::string::npos);
  WriteHeader(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})",
              eight);
  EXPECT_NE(Refusal().find("4294967296"), std::string::npos);
  WriteHeader(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,8]}})", eight);
  EXPECT_NE(Refusal().find("-1"), std::string::npos);
  WriteHeader(R"({"a":{"dtype":"F32","shape":[2]}})", eight);
  EXPECT_NE(Refusal().find("data_offsets: missing"), std::string::npos);
}

TEST_F(Safetensors, BrokenFilesNeverCrash) {
  const std::vector<float> floats = {1, 2, 3, 4};
  WriteSafetensors(path_, {{"x", DType::kFloat32, {2, 2}, std::as_bytes(std::span(floats))},
                           {"y", DType::kBFloat16, {8}, std::as_bytes(std::span(floats))}});
  std::ifstream in(path_, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  for (size_t length = 0; length < whole.size(); ++length) {
    WriteBytes(whole.substr(0, length));
    EXPECT_THROW(SafetensorsFile{path_}, std::runtime_error) << length;
  }
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    std::string bytes = whole;
    for (unsigned i = 0; i < 1 + random() % 3; ++i) {
      bytes[random() % (bytes.size() - 32)] = static_cast<char>(random());
    }
    WriteBytes(bytes);
    try {
      const SafetensorsFile file(path_);
      for (const auto& [name, tensor] : file.tensors()) {
        ASSERT_EQ(file.data(name).size(), static_cast<size_t>(tensor.bytes));
      }
    } catch (const std::runtime_error&) {
      continue;
    }
  }
}

}  // namespace
}  // namespace dmuon

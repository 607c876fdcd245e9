// The tuning cache: what it keeps, what it refuses, and many processes on one file.
#include "scheduler/tuning_cache.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

namespace dmuon::scheduler {
namespace {

const kernels::DeviceIdentity kDevice = {"cpu", "Test 9000, avx2", 2, "oneDNN 1.2, libxsmm 3"};

TuningRecord Record(int64_t rows, int64_t batch = 1, double median_s = 0.25) {
  TuningRecord record;
  record.measured.rows = rows;
  record.measured.cols = 64;
  record.measured.batch = batch;
  record.measured.form = kernels::Form::kGram;
  record.measured.restart = {2};
  record.measured.iterations = 5;
  record.choice = {.symmetric_tile = 64, .part = 1};
  record.median_s = median_s;
  return record;
}

class TuningCacheTest : public ::testing::Test {
 protected:
  TuningCacheTest() {
    folder_ = ::testing::TempDir() + "tuning-cache-XXXXXX";
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    path_ = folder_ + "/cache.json";
  }
  ~TuningCacheTest() override { std::filesystem::remove_all(folder_); }

  std::string Text() const {
    std::ostringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }
  void Write(const std::string& text) const { std::ofstream(path_) << text; }

  // What reading and merging are refused with; both must be, and leave the file as it is.
  std::string Refusal() const {
    const std::string before = Text();
    std::string refusal;
    try {
      TuningCache(path_).Read(kDevice);
    } catch (const TuningCacheError& error) {
      refusal = error.what();
    }
    EXPECT_THROW(TuningCache(path_).Merge(kDevice, {1e9, {Record(8)}}), TuningCacheError);
    EXPECT_EQ(Text(), before);
    EXPECT_EQ(refusal.find('\n'), std::string::npos);
    EXPECT_NE(refusal.find(path_), std::string::npos) << refusal;
    return refusal;
  }

  void ExpectRefused(const std::string& text, const std::string& cause) {
    Write(text);
    EXPECT_NE(Refusal().find(cause), std::string::npos) << Refusal();
  }

  std::string folder_;
  std::string path_;
};

TEST_F(TuningCacheTest, MissingFileHasNothing) {
  const TuningCache cache(path_);
  EXPECT_FALSE(cache.Exists());
  EXPECT_FALSE(cache.Read(kDevice).has_value());
  EXPECT_TRUE(cache.Keys().empty());
}

TEST_F(TuningCacheTest, WritesTheDocumentedFormat) {
  TuningCache(path_).Merge(kDevice, {2.1e10, {Record(768, 4, 0.0123)}});
  const auto root = nlohmann::json::parse(Text());
  const nlohmann::json expected = nlohmann::json::parse(R"({
      "device": {"kind": "cpu", "name": "Test 9000, avx2", "threads": 2,
                 "libraries": "oneDNN 1.2, libxsmm 3"},
      "elementwise_bytes_per_s": 2.1e10,
      "records": [{"rows": 768, "cols": 64, "batch": 4, "precision": "fp32", "form": "gram",
                   "restart": [2], "iterations": 5, "choice": {"symmetric_tile": 64, "part": 1},
                   "median_s": 0.0123}]})");
  EXPECT_EQ(root.at("format"), "dmuon-tuning-1");
  ASSERT_EQ(root.at("entries").size(), 1U);
  EXPECT_EQ(root.at("entries").begin().value(), expected);
  EXPECT_EQ(root.at("entries").begin().key(), TuningKey(kDevice));
}

TEST_F(TuningCacheTest, ReadsWhatWasMerged) {
  const TuningCache cache(path_);
  cache.Merge(kDevice, {2.1e10, {Record(768, 4, 0.0123)}});
  const auto entry = cache.Read(kDevice);
  ASSERT_TRUE(entry.has_value());
  EXPECT_EQ(entry->elementwise_bytes_per_s, 2.1e10);
  ASSERT_EQ(entry->records.size(), 1U);
  EXPECT_EQ(entry->records[0].measured, Record(768, 4).measured);
  EXPECT_EQ(entry->records[0].choice, Record(768).choice);
  EXPECT_EQ(entry->records[0].median_s, 0.0123);
  kernels::NewtonSchulzOptions options;
  options.coefficients.resize(5);
  options.form = kernels::Form::kGram;
  options.restart = {2};
  EXPECT_EQ(ExecutionTableOf(*entry).Find(768, 64, 4, options), Record(768).choice);
}

TEST_F(TuningCacheTest, EqualCasesAreReplacedAndOthersKept) {
  const TuningCache cache(path_);
  cache.Merge(kDevice, {1e9, {Record(8, 1, 1.0), Record(8, 2, 2.0)}});
  cache.Merge(kDevice, {2e9, {Record(8, 2, 3.0), Record(16, 1, 4.0)}});
  const auto entry = cache.Read(kDevice);
  ASSERT_EQ(entry->records.size(), 3U);
  EXPECT_EQ(entry->records[0].median_s, 1.0);
  EXPECT_EQ(entry->records[1].median_s, 3.0);
  EXPECT_EQ(entry->records[2].median_s, 4.0);
  EXPECT_EQ(entry->elementwise_bytes_per_s, 2e9);
}

TEST_F(TuningCacheTest, EveryPartOfTheKeyTellsDevicesApart) {
  const TuningCache cache(path_);
  cache.Merge(kDevice, {1e9, {Record(8)}});
  kernels::DeviceIdentity other = kDevice;
  other.threads = 3;
  EXPECT_FALSE(cache.Read(other).has_value());
  other = kDevice;
  other.libraries = "oneDNN 1.3, libxsmm 3";
  EXPECT_FALSE(cache.Read(other).has_value());
  other = kDevice;
  other.name = "Test 9001, avx2";
  EXPECT_FALSE(cache.Read(other).has_value());
  EXPECT_NE(TuningKey(kDevice).find("dmuon "), std::string::npos);
  cache.Merge(other, {1e9, {Record(8)}});
  EXPECT_EQ(cache.Keys().size(), 2U);
}

// Another version of dmuon may have written an entry that this one does not understand.
TEST_F(TuningCacheTest, EntriesOfOthersAreKeptAsTheyAre) {
  Write(R"({"format": "dmuon-tuning-1", "entries": {"other": {"new": [1, {"x": 2}]}}})");
  TuningCache(path_).Merge(kDevice, {1e9, {Record(8)}});
  const auto root = nlohmann::json::parse(Text());
  EXPECT_EQ(root.at("entries").at("other"), nlohmann::json::parse(R"({"new": [1, {"x": 2}]})"));
  EXPECT_EQ(root.at("entries").size(), 2U);
}

TEST_F(TuningCacheTest, RefusesWhatIsNoCache) {
  ExpectRefused("", "empty");
  ExpectRefused("{\"format\": \"dmuon-tuning-1\", \"entr", "not JSON");
  ExpectRefused("[]", "not an object");
  ExpectRefused("{\"entries\": {}}", "format");
  ExpectRefused(R"({"format": "dmuon-profile-1", "entries": {}})", "dmuon-profile-1");
  ExpectRefused(R"({"format": "dmuon-tuning-1"})", "entries");
  ExpectRefused(R"({"format": "dmuon-tuning-1", "entries": []})", "entries");
  ExpectRefused(R"({"format": "dmuon-tuning-1", "entries": {}, "more": 1})", "more");
}

TEST_F(TuningCacheTest, RefusesADamagedEntryOfThisDevice) {
  const TuningCache cache(path_);
  cache.Merge(kDevice, {1e9, {Record(8)}});
  const nlohmann::json good = nlohmann::json::parse(Text());
  const std::string key = TuningKey(kDevice);
  const auto refused = [&](const char* pointer, const nlohmann::json& value, const char* cause) {
    nlohmann::json bad = good;
    bad["entries"][key][nlohmann::json::json_pointer(pointer)] = value;
    ExpectRefused(bad.dump(), cause);
  };
  refused("/records/0/rows", 0, "rows");
  refused("/records/0/median_s", -1.0, "median_s");
  refused("/records/0/median_s", "fast", "median_s");
  refused("/records/0/form", "square", "form");
  refused("/records/0/restart", nlohmann::json::array({7}), "restart");
  refused("/records/0/choice/speed", 1, "choice.speed");
  refused("/records/0/choice/part", -1, "choice.part");
  refused("/records", 3, "records");
  refused("/elementwise_bytes_per_s", 0, "elementwise_bytes_per_s");
}

TEST_F(TuningCacheTest, RefusesFilesThatAreNoneAndFoldersThatAreMissing) {
  std::filesystem::create_directory(path_);
  EXPECT_NE(Refusal().find("not a regular file"), std::string::npos);
  const TuningCache nowhere(folder_ + "/none/cache.json");
  EXPECT_THROW(nowhere.CheckWritable(), std::runtime_error);
  EXPECT_THROW(nowhere.Merge(kDevice, {1e9, {Record(8)}}), std::runtime_error);
}

TEST_F(TuningCacheTest, CheckingLeavesNothingButTheLock) {
  TuningCache(path_).CheckWritable();
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_FALSE(std::filesystem::exists(path_ + ".tmp"));
}

// Runs `body` in `count` processes at once; all must leave with 0.
template <typename Body>
void Fork(int count, Body body) {
  std::vector<pid_t> children;
  for (int i = 0; i < count; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      try {
        body(i);
      } catch (...) {
        _exit(1);
      }
      _exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

TEST_F(TuningCacheTest, WritersAtTheSameTimeLoseNothing) {
  constexpr int kWriters = 8;
  constexpr int kRecords = 12;
  Fork(kWriters, [&](int writer) {
    for (int i = 0; i < kRecords; ++i) {
      TuningCache(path_).Merge(kDevice, {1e9, {Record(1 + writer * 100 + i)}});
    }
  });
  const auto entry = TuningCache(path_).Read(kDevice);
  ASSERT_TRUE(entry.has_value());
  std::vector<int64_t> rows;
  for (const TuningRecord& record : entry->records) {
    rows.push_back(record.measured.rows);
  }
  std::sort(rows.begin(), rows.end());
  std::vector<int64_t> expected;
  for (int writer = 0; writer < kWriters; ++writer) {
    for (int i = 0; i < kRecords; ++i) {
      expected.push_back(1 + writer * 100 + i);
    }
  }
  EXPECT_EQ(rows, expected);
}

// A writer is killed again and again, at whatever it is doing: what it had merged before is there,
// the file is whole, and nobody waits for the dead one's lock.
TEST_F(TuningCacheTest, KilledWriterLeavesAWholeFile) {
  const TuningCache cache(path_);
  cache.Merge(kDevice, {1e9, {Record(1)}});
  size_t before = 1;
  for (int round = 0; round < 20; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      for (int64_t i = 0;; ++i) {
        cache.Merge(kDevice, {1e9, {Record(2 + round * 100000 + i)}});
      }
    }
    while (cache.Read(kDevice)->records.size() <= before) {
    }
    std::this_thread::sleep_for(std::chrono::microseconds(round * 137));  // elsewhere each time
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    const auto entry = cache.Read(kDevice);
    ASSERT_TRUE(entry.has_value());
    EXPECT_GT(entry->records.size(), before);
    before = entry->records.size();
  }
  cache.Merge(kDevice, {1e9, {Record(7777777)}});
  EXPECT_EQ(cache.Read(kDevice)->records.size(), before + 1);
  EXPECT_FALSE(std::filesystem::exists(path_ + ".tmp"));
}

}  // namespace
}  // namespace dmuon::scheduler

// Ways of executing a step: none changes a bit, and tables find the right one.
#include "kernels/execution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "kernels/execution_fields.h"
#include "tests/kernels/backends.h"
#include "tests/kernels/inputs.h"

namespace dmuon::kernels::testing {
namespace {

NewtonSchulzOptions Numerics(int64_t rows, int64_t cols, ElementType precision, Form form) {
  NewtonSchulzOptions options = PlainOptions(PolarExpress());
  options.precision = precision;
  options.form = form;
  if (form == Form::kGram) {
    options.restart = DefaultRestart(rows, cols, precision, options.coefficients);
  }
  return options;
}

std::vector<Matrix> InputsOf(int64_t rows, int64_t cols, int64_t count) {
  std::vector<Matrix> batch;
  for (int64_t i = 0; i < count; ++i) {
    const InputClass input = AllInputClasses()[i % std::ssize(AllInputClasses())];
    batch.push_back(MakeInput(input, rows, cols, static_cast<uint64_t>(i)));
  }
  return batch;
}

std::vector<Matrix> RunWith(Device& device, const MuonExecution& choice,
                            const NewtonSchulzOptions& options, const std::vector<Matrix>& batch) {
  ExecutionTable table;
  table.Set(ExecutionCaseOf(batch[0].rows, batch[0].cols, std::ssize(batch), options), choice);
  device.UseTuning(table);
  std::vector<Matrix> results = RunNewtonSchulz(device, options, batch);
  device.UseTuning({});
  return results;
}

void ExpectSameBitsFromAllCandidates(Device& device, const NewtonSchulzOptions& options,
                                     const std::vector<Matrix>& batch) {
  const int64_t rows = batch[0].rows;
  const int64_t cols = batch[0].cols;
  const std::vector<MuonExecution> candidates =
      device.Candidates(rows, cols, std::ssize(batch), options);
  ASSERT_FALSE(candidates.empty());
  EXPECT_EQ(candidates[0], MuonExecution());
  const std::vector<Matrix> expected = RunNewtonSchulz(device, options, batch);
  for (const MuonExecution& choice : candidates) {
    const std::vector<Matrix> results = RunWith(device, choice, options, batch);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      EXPECT_EQ(results[i].values, expected[i].values)
          << rows << "x" << cols << " batch " << batch.size() << " at " << i << " "
          << NameOf(options.precision) << " " << NameOf(options.form) << ": " << TextOf(choice);
    }
  }
}

void ExpectSameBitsInEveryNumerics(Device& device, int64_t rows, int64_t cols, int64_t count) {
  for (const ElementType precision :
       {ElementType::kFloat32, ElementType::kBFloat16, ElementType::kFloat16}) {
    for (const Form form : {Form::kDirect, Form::kGram}) {
      if (device.Supports(precision, nullptr)) {
        ExpectSameBitsFromAllCandidates(device, Numerics(rows, cols, precision, form),
                                        InputsOf(rows, cols, count));
      }
    }
  }
}

class Execution : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Backends, Execution, ::testing::ValuesIn(Backends()), BackendName);

TEST_P(Execution, NoChoiceChangesTheBitsOfOneMatrix) {
  for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{
           {40, 96}, {96, 40}, {128, 128}, {257, 290}, {70, 513}, {300, 150}}) {
    ExpectSameBitsInEveryNumerics(*device_, rows, cols, 1);
  }
}

TEST_P(Execution, NoChoiceChangesTheBitsOfABatch) {
  for (const auto& [rows, cols, count] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
           {40, 96, 7}, {96, 40, 4}, {130, 140, 3}}) {
    ExpectSameBitsInEveryNumerics(*device_, rows, cols, count);
  }
}

TEST_P(Execution, UnknownChoicesAreRefusedAndChangeNothing) {
  const NewtonSchulzOptions options = PlainOptions(PolarExpress());
  for (const ExecutionField& field : ExecutionFields()) {
    for (const int value : {-1, 7777777}) {
      MuonExecution choice;
      choice.*field.value = value;
      ExecutionTable table;
      table.Set(ExecutionCaseOf(8, 8, 1, options), choice);
      try {
        device_->UseTuning(table);
        ADD_FAILURE() << TextOf(choice) << " was taken";
      } catch (const std::invalid_argument& error) {
        EXPECT_NE(std::string(error.what()).find(TextOf(choice)), std::string::npos);
      }
    }
  }
  const Matrix u = MakeInput(InputClass::kGaussian, 8, 8, 1);
  EXPECT_LE(RelativeError(RunNewtonSchulz(*device_, options, u), ReferenceNewtonSchulz(u, options)),
            5e-5);
}

TEST_P(Execution, IdentityNamesDeviceAndLibraries) {
  const DeviceIdentity identity = device_->Identity();
  EXPECT_TRUE(identity.kind == "cpu" || identity.kind == "cuda");
  EXPECT_FALSE(identity.name.empty());
  EXPECT_GE(identity.threads, 1);
  const std::string library = identity.kind == "cpu" ? "oneDNN " : "cuBLAS ";
  EXPECT_NE(identity.libraries.find(library), std::string::npos) << identity.libraries;
}

TEST(CpuExecution, ResultDoesNotDependOnThreadsWhateverTheChoice) {
  if (!BuiltWithCpuBackend()) {
    GTEST_SKIP() << "this build has no CPU backend";
  }
  const std::unique_ptr<Device> one = MakeCpuDevice({1});
  const std::unique_ptr<Device> two = MakeCpuDevice({2});
  for (const int64_t count : {1, 4}) {
    const std::vector<Matrix> batch = InputsOf(150, 280, count);
    const NewtonSchulzOptions options = Numerics(150, 280, ElementType::kFloat32, Form::kGram);
    const std::vector<Matrix> expected = RunNewtonSchulz(*one, options, batch);
    for (const MuonExecution& choice : two->Candidates(150, 280, count, options)) {
      const std::vector<Matrix> results = RunWith(*two, choice, options, batch);
      for (int64_t i = 0; i < count; ++i) {
        EXPECT_EQ(results[i].values, expected[i].values) << TextOf(choice);
      }
    }
  }
}

// The ways in which a CPU with two threads can share a batch, besides its tiles.
std::vector<MuonExecution> SharingsOf(int64_t side, int64_t batch) {
  const NewtonSchulzOptions options = PlainOptions(PolarExpress());
  std::vector<MuonExecution> candidates =
      MakeCpuDevice({2})->Candidates(side, side, batch, options);
  std::erase_if(candidates, [](const MuonExecution& choice) {
    return choice.symmetric_tile != 0 || choice.product_tile != 0;
  });
  return candidates;
}

TEST(CpuExecution, BatchesAreSharedInEveryWayThatIsNotTheDefault) {
  if (!BuiltWithCpuBackend()) {
    GTEST_SKIP() << "this build has no CPU backend";
  }
  using Choices = std::vector<MuonExecution>;
  constexpr MuonExecution kWhole = {.sharing = MuonExecution::kWholeMatrices};
  constexpr MuonExecution kShared = {.sharing = MuonExecution::kSharedMatrices};
  constexpr MuonExecution kOneByOne = {.sharing = MuonExecution::kSharedMatrices, .part = 1};
  EXPECT_EQ(SharingsOf(128, 1), (Choices{{}}));
  EXPECT_EQ(SharingsOf(128, 8), (Choices{{}, kShared, kOneByOne}));  // by default whole
  EXPECT_EQ(SharingsOf(1024, 8), (Choices{{}, kWhole, kOneByOne}));  // by default shared
}

TEST(ExecutionTable, FindsTheNearestBatchThatIsNotAbove) {
  const NewtonSchulzOptions options = PlainOptions(PolarExpress());
  ExecutionTable table;
  table.Set(ExecutionCaseOf(32, 64, 8, options), {.part = 8});
  table.Set(ExecutionCaseOf(32, 64, 2, options), {.part = 2});
  EXPECT_EQ(table.Find(32, 64, 1, options), MuonExecution());
  EXPECT_EQ(table.Find(32, 64, 2, options).part, 2);
  EXPECT_EQ(table.Find(32, 64, 7, options).part, 2);
  EXPECT_EQ(table.Find(32, 64, 8, options).part, 8);
  EXPECT_EQ(table.Find(32, 64, 1000, options).part, 8);
}

TEST(ExecutionTable, AnswersOnlyForItsShapeAndNumerics) {
  const NewtonSchulzOptions options = Numerics(32, 64, ElementType::kFloat32, Form::kGram);
  ExecutionTable table;
  table.Set(ExecutionCaseOf(32, 64, 1, options), {.part = 1});
  EXPECT_EQ(table.Find(64, 32, 1, options), MuonExecution());
  NewtonSchulzOptions other = options;
  other.form = Form::kDirect;
  EXPECT_EQ(table.Find(32, 64, 1, other), MuonExecution());
  other = options;
  other.restart = {1, 3};
  EXPECT_EQ(table.Find(32, 64, 1, other), MuonExecution());
  other = options;
  other.precision = ElementType::kBFloat16;
  EXPECT_EQ(table.Find(32, 64, 1, other), MuonExecution());
  other = options;
  other.coefficients.pop_back();
  EXPECT_EQ(table.Find(32, 64, 1, other), MuonExecution());
  EXPECT_EQ(table.Find(32, 64, 1, options).part, 1);
}

TEST(ExecutionTable, LaterChoiceOfTheSameCaseWins) {
  const NewtonSchulzOptions options = PlainOptions(PolarExpress());
  ExecutionTable table;
  table.Set(ExecutionCaseOf(32, 64, 1, options), {.part = 1});
  table.Set(ExecutionCaseOf(32, 64, 1, options), {.part = 3});
  EXPECT_EQ(table.entries().size(), 1U);
  EXPECT_EQ(table.Find(32, 64, 1, options).part, 3);
}

TEST(MuonExecution, NamesWhatWasChosen) {
  EXPECT_EQ(TextOf({}), "default");
  EXPECT_EQ(TextOf({.symmetric_tile = 64, .part = 1}), "symmetric_tile 64, part 1");
}

}  // namespace
}  // namespace dmuon::kernels::testing

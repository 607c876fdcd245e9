// Newton-Schulz on every backend: accuracy on all input classes, and bits that depend on nothing
// but the matrix.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "tests/kernels/backends.h"
#include "tests/kernels/inputs.h"

namespace dmuon::kernels::testing {
namespace {

constexpr int64_t kRows = 48;
constexpr int64_t kCols = 160;
constexpr double kDirectLimit = 5e-5;
constexpr double kGramLimit = 3e-4;
constexpr double kHalfRatio = 1.2;

// What accuracy is judged by on one input: the exact answer, and what bf16 gives today.
struct Judge {
  Matrix exact;  // fp64 polynomial of the cast input
  double plain_bf16_error = 0.0;
};

Judge MakeJudge(const Matrix& u, const NewtonSchulzOptions& options) {
  Judge judge;
  judge.exact = Polynomial(CastInput(u, options.normalize, options.eps, options.precision),
                           options.coefficients);
  if (options.precision != ElementType::kFloat32) {
    const Matrix cast = CastInput(u, options.normalize, options.eps, ElementType::kBFloat16);
    judge.plain_bf16_error = RelativeError(PlainBFloat16(cast, options.coefficients),
                                           Polynomial(cast, options.coefficients));
  }
  return judge;
}

double LimitOf(const Judge& judge, const NewtonSchulzOptions& options) {
  if (options.precision != ElementType::kFloat32) {
    return kHalfRatio * judge.plain_bf16_error;
  }
  return options.form == Form::kGram ? kGramLimit : kDirectLimit;
}

// One matrix of each class; a class that the numerics cannot represent is left out: under eps_add
// and eps_max, X of a tiny input is far below the smallest fp16.
std::vector<InputClass> ClassesFor(const NewtonSchulzOptions& options) {
  std::vector<InputClass> classes = AllInputClasses();
  if (options.precision == ElementType::kFloat16 && options.normalize != Normalize::kStrict) {
    std::erase(classes, InputClass::kTiny);
  }
  return classes;
}

// Inputs of one shape with what their results are judged by, each made once: forms and orientations
// share them.
class Judges {
 public:
  Judges(int64_t rows, int64_t cols) : rows_(rows), cols_(cols) {}

  const Matrix& Input(InputClass input) {
    const auto [entry, is_new] = inputs_.try_emplace(input);
    if (is_new) {
      entry->second = MakeInput(input, rows_, cols_, 7);
    }
    return entry->second;
  }

  const Judge& For(InputClass input, const NewtonSchulzOptions& options) {
    const auto [entry, is_new] = judges_.try_emplace(
        {input, options.coefficients[0][0], options.normalize, options.precision});
    if (is_new) {
      entry->second = MakeJudge(Input(input), options);
    }
    return entry->second;
  }

 private:
  using Key = std::tuple<InputClass, double, Normalize, ElementType>;

  int64_t rows_;
  int64_t cols_;
  std::map<InputClass, Matrix> inputs_;
  std::map<Key, Judge> judges_;
};

// All classes in one batch, in one orientation.
void ExpectAccurate(Device& device, const NewtonSchulzOptions& options, bool upright,
                    const std::vector<InputClass>& classes, Judges& judges) {
  std::vector<Matrix> batch;
  for (const InputClass input : classes) {
    const Matrix& u = judges.Input(input);
    batch.push_back(upright ? Transposed(u) : u);
  }
  const std::vector<Matrix> results = RunNewtonSchulz(device, options, batch);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const Judge& judge = judges.For(classes[i], options);
    const Matrix result = upright ? Transposed(results[i]) : results[i];
    EXPECT_LE(RelativeError(result, judge.exact), LimitOf(judge, options))
        << NameOf(classes[i]) << (upright ? " upright" : " wide") << " normalize "
        << static_cast<int>(options.normalize);
  }
}

void ExpectAccurateEverywhere(Device& device, ElementType precision) {
  std::string why;
  if (!device.Supports(precision, &why)) {
    GTEST_SKIP() << why;
  }
  Judges judges(kRows, kCols);
  for (const NamedCoefficients& set : CoefficientSets()) {
    const std::vector<int> shipped = DefaultRestart(kRows, kCols, precision, set.values);
    for (const auto& [form, restart] : std::vector<std::pair<Form, std::vector<int>>>{
             {Form::kDirect, {}}, {Form::kGram, shipped}, {Form::kGram, {2}}}) {
      for (const Normalize normalize :
           {Normalize::kStrict, Normalize::kEpsAdd, Normalize::kEpsMax}) {
        SCOPED_TRACE(set.name + " " + std::string(NameOf(form)));
        NewtonSchulzOptions options;
        options.coefficients = set.values;
        options.form = form;
        options.restart = restart;
        options.normalize = normalize;
        options.precision = precision;
        ExpectAccurate(device, options, false, ClassesFor(options), judges);
        ExpectAccurate(device, options, true, ClassesFor(options), judges);
      }
    }
  }
}

class NewtonSchulz : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Backends, NewtonSchulz, ::testing::ValuesIn(Backends()), BackendName);

TEST_P(NewtonSchulz, IsAccurateInFloat32) {
  ExpectAccurateEverywhere(*device_, ElementType::kFloat32);
}

TEST_P(NewtonSchulz, IsAccurateInBFloat16) {
  ExpectAccurateEverywhere(*device_, ElementType::kBFloat16);
}

TEST_P(NewtonSchulz, IsAccurateInFloat16) {
  ExpectAccurateEverywhere(*device_, ElementType::kFloat16);
}

// Sizes around and over the tile, and the form that is shipped for them.
TEST_P(NewtonSchulz, IsAccurateAcrossTiles) {
  for (const auto& [rows, cols] :
       std::vector<std::pair<int64_t, int64_t>>{{256, 256}, {257, 290}, {70, 513}}) {
    Judges judges(rows, cols);
    for (const ElementType precision : {ElementType::kFloat32, ElementType::kBFloat16}) {
      SCOPED_TRACE(std::to_string(rows) + "x" + std::to_string(cols));
      NewtonSchulzOptions options = PlainOptions(PolarExpress());
      options.precision = precision;
      options.form = DefaultForm(rows, cols, precision);
      options.restart = DefaultRestart(rows, cols, precision, PolarExpress());
      ExpectAccurate(*device_, options, false, {InputClass::kGaussian, InputClass::kLowRank},
                     judges);
    }
  }
}

TEST_P(NewtonSchulz, IsAccurateOnSmallAndThinShapes) {
  for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {1, 2}, {1, 1000}, {2, 2}, {2, 3}, {3, 31}, {7, 7}, {8, 33}, {17, 9000}}) {
    for (const Form form : {Form::kDirect, Form::kGram}) {
      for (const bool upright : {false, true}) {
        SCOPED_TRACE(std::to_string(rows) + "x" + std::to_string(cols));
        NewtonSchulzOptions options = PlainOptions(PolarExpress());
        options.form = form;
        options.restart = {2};
        const Matrix wide = MakeInput(InputClass::kGaussian, rows, cols, 3);
        const Matrix u = upright ? Transposed(wide) : wide;
        const Matrix exact = ReferenceNewtonSchulz(u, options);
        EXPECT_LE(RelativeError(RunNewtonSchulz(*device_, options, u), exact), kDirectLimit);
      }
    }
  }
}

TEST_P(NewtonSchulz, ResultDoesNotDependOnTheBatch) {
  if (GetParam().batch_changes_bits) {
    GTEST_SKIP() << GetParam().name << " does not promise that";
  }
  const std::vector<Matrix> batch = [] {
    std::vector<Matrix> all;
    for (uint64_t i = 0; i < 64; ++i) {
      all.push_back(MakeInput(AllInputClasses()[i % AllInputClasses().size()], 40, 96, i));
    }
    return all;
  }();
  for (const ElementType precision :
       {ElementType::kFloat32, ElementType::kBFloat16, ElementType::kFloat16}) {
    for (const Form form : {Form::kDirect, Form::kGram}) {
      if (!device_->Supports(precision, nullptr)) {
        continue;
      }
      NewtonSchulzOptions options = PlainOptions(PolarExpress());
      options.precision = precision;
      options.form = form;
      options.restart = {2};
      std::vector<Matrix> alone;
      for (const Matrix& u : batch) {
        alone.push_back(RunNewtonSchulz(*device_, options, u));
      }
      for (const std::size_t size : {2, 3, 8, 17, 64}) {
        const auto first = static_cast<std::ptrdiff_t>(64 - size);
        const auto results =
            RunNewtonSchulz(*device_, options, {batch.begin() + first, batch.end()});
        for (std::size_t i = 0; i < size; ++i) {
          EXPECT_EQ(results[i].values, alone[first + i].values) << "batch " << size << " at " << i;
        }
      }
    }
  }
}

// A batch that does not fit the workspace at once runs in parts.
TEST_P(NewtonSchulz, ResultDoesNotDependOnHowALargeBatchIsCut) {
  if (GetParam().batch_changes_bits) {
    GTEST_SKIP() << GetParam().name << " does not promise that";
  }
  NewtonSchulzOptions options = PlainOptions(Coefficients(1, {1.5, -0.5, 0.0}));
  const std::vector<Matrix> batch(5, MakeInput(InputClass::kGaussian, 33, 45000, 5));
  const Matrix alone = RunNewtonSchulz(*device_, options, batch[0]);
  for (const Matrix& result : RunNewtonSchulz(*device_, options, batch)) {
    EXPECT_EQ(result.values, alone.values);
  }
}

TEST(CpuNewtonSchulz, ResultDoesNotDependOnThreads) {
  if (!BuiltWithCpuBackend()) {
    GTEST_SKIP() << "this build has no CPU backend";
  }
  const Matrix u = MakeInput(InputClass::kPowerLaw, 300, 520, 11);
  for (const Form form : {Form::kDirect, Form::kGram}) {
    for (const ElementType precision : {ElementType::kFloat32, ElementType::kBFloat16}) {
      NewtonSchulzOptions options = PlainOptions(PolarExpress());
      options.form = form;
      options.restart = {2};
      options.precision = precision;
      const Matrix one = RunNewtonSchulz(*MakeCpuDevice({1}), options, u);
      for (const int threads : {2, 3, 5}) {
        EXPECT_EQ(RunNewtonSchulz(*MakeCpuDevice({threads}), options, u).values, one.values);
      }
    }
  }
}

// The comparison must notice a wrong coefficient.
TEST_P(NewtonSchulz, SwappedCoefficientIsNoticed) {
  NewtonSchulzOptions options = PlainOptions(PolarExpress());
  const Matrix u = MakeInput(InputClass::kGaussian, kRows, kCols, 7);
  const Judge judge = MakeJudge(u, options);
  std::swap(options.coefficients[3][1], options.coefficients[3][2]);
  EXPECT_GT(RelativeError(RunNewtonSchulz(*device_, options, u), judge.exact), kDirectLimit);
  options.coefficients = PolarExpress();
  std::swap(options.coefficients[2], options.coefficients[3]);
  EXPECT_GT(RelativeError(RunNewtonSchulz(*device_, options, u), judge.exact), kDirectLimit);
}

}  // namespace
}  // namespace dmuon::kernels::testing

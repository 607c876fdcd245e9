#include <gtest/gtest.h>

#include "proto/session_spec.h"

namespace dmuon {
namespace {

using Matrices = std::vector<StridedMatrix>;

Matrices Of(const std::string& shape, const std::string& view) {
  const std::string view_text = view.empty() ? "" : R"(, "view": )" + view;
  return MatricesOf(
      ParseSessionSpec(R"({"parameters": [{"name": "w", "shape": )" + shape + view_text + "}]}")
          .parameters.front());
}

TEST(Views, Matrix) {
  EXPECT_EQ(Of("[3, 5]", ""), (Matrices{{0, 3, 5, 5}}));
  EXPECT_EQ(Of("[3, 5]", R"("matrix")"), (Matrices{{0, 3, 5, 5}}));
}

// cases.md row 10.
TEST(Views, FlattenTakesConvolutionsRowByRow) {
  EXPECT_EQ(Of("[64, 32, 3, 3]", R"("flatten")"), (Matrices{{0, 64, 288, 288}}));
}

TEST(Views, StackGivesOneMatrixAnExpert) {
  EXPECT_EQ(Of("[3, 4, 5]", R"("stack")"), (Matrices{{0, 4, 5, 5}, {20, 4, 5, 5}, {40, 4, 5, 5}}));
}

TEST(Views, SplitRows) {
  EXPECT_EQ(Of("[6, 4]", R"({"split_rows": [3, 2, 1]})"),
            (Matrices{{0, 3, 4, 4}, {12, 2, 4, 4}, {20, 1, 4, 4}}));
}

TEST(Views, SplitCols) {
  EXPECT_EQ(Of("[3, 6]", R"({"split_cols": [4, 2]})"), (Matrices{{0, 3, 4, 6}, {4, 3, 2, 6}}));
}

TEST(Views, InterleaveRowsTakesEveryKthRow) {
  EXPECT_EQ(Of("[6, 4]", R"({"interleave_rows": 2})"), (Matrices{{0, 3, 4, 8}, {4, 3, 4, 8}}));
}

TEST(Views, StackComesBeforeTheOthers) {
  EXPECT_EQ(Of("[2, 4, 3]", R"({"stack": true, "split_rows": [3, 1]})"),
            (Matrices{{0, 3, 3, 3}, {9, 1, 3, 3}, {12, 3, 3, 3}, {21, 1, 3, 3}}));
  EXPECT_EQ(Of("[2, 2, 3]", R"({"stack": true, "split_cols": [1, 2]})"),
            (Matrices{{0, 2, 1, 3}, {1, 2, 2, 3}, {6, 2, 1, 3}, {7, 2, 2, 3}}));
  EXPECT_EQ(Of("[2, 4, 3]", R"({"stack": true, "interleave_rows": 2})"),
            (Matrices{{0, 2, 3, 6}, {3, 2, 3, 6}, {12, 2, 3, 6}, {15, 2, 3, 6}}));
  EXPECT_EQ(Of("[2, 4, 3, 2]", R"({"stack": true, "flatten": true})"),
            (Matrices{{0, 4, 6, 6}, {24, 4, 6, 6}}));
}

}  // namespace
}  // namespace dmuon

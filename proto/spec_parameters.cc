#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "proto/spec_sections.h"

namespace dmuon::spec {
namespace {

std::vector<int64_t> ReadShape(const Json& value, const KeyPath& path) {
  std::vector<int64_t> shape = ReadIntegers(value, path, 1, kMaxParameterElements, kMaxDimensions);
  int64_t elements = 1;
  for (const int64_t extent : shape) {
    if (extent > kMaxParameterElements / elements) {
      Refuse(path, Excerpt(value) + " has more than " + std::to_string(kMaxParameterElements) +
                       " elements, the most that one parameter may have");
    }
    elements *= extent;
  }
  return shape;
}

void CheckMatrixSides(const ParameterSpec& parameter, const KeyPath& path) {
  const std::vector<StridedMatrix> matrices = MatricesOf(parameter);
  for (const StridedMatrix& matrix : matrices) {
    if (std::min(matrix.rows, matrix.cols) > kMaxMatrixSide) {
      Refuse(path, Excerpt(Json(parameter.shape)) + " gives a muon matrix of " +
                       std::to_string(matrix.rows) + " x " + std::to_string(matrix.cols) +
                       "; its shorter side may have at most " + std::to_string(kMaxMatrixSide) +
                       "; use a view that cuts it or \"rule\": \"adamw\"");
    }
  }
}

// Reads parameters one by one and knows the groups.
class ParameterReader {
 public:
  explicit ParameterReader(const std::vector<GroupSpec>& groups) : groups_(groups) {
    for (size_t i = 0; i < groups.size(); ++i) {
      group_index_[groups[i].name] = static_cast<int>(i);
    }
  }

  ParameterSpec Read(const Json& value, const KeyPath& index_path) {
    CheckKeys(value, index_path, {"name", "shape", "dtype", "rule", "group", "view", "order"});
    ParameterSpec parameter;
    parameter.name = ReadName(value, index_path);
    // From here on messages say the name, which people know, not the index.
    const std::string title = "parameters[" + Excerpt(Json(parameter.name)) + "]";
    const KeyPath path = KeyPath::Titled(title);
    const KeyPath shape_path(path, "shape");
    const Json* shape = Find(value, "shape");
    if (shape == nullptr) {
      Refuse(shape_path, "missing; a parameter has a shape, like [768, 768]");
    }
    parameter.shape = ReadShape(*shape, shape_path);
    if (const Json* dtype = Find(value, "dtype")) {
      parameter.dtype = ReadEnum(*dtype, KeyPath(path, "dtype"), kParameterDTypes);
    }
    if (const Json* order = Find(value, "order")) {
      parameter.order =
          ReadInteger(*order, KeyPath(path, "order"), 0, std::numeric_limits<int64_t>::max());
    }
    ReadRuleAndGroup(value, path, &parameter);
    parameter.view =
        ReadView(Find(value, "view"), KeyPath(path, "view"), parameter.shape, parameter.rule);
    Count(parameter, path);
    return parameter;
  }

 private:
  std::string ReadName(const Json& value, const KeyPath& path) {
    const KeyPath name_path(path, "name");
    const Json* name = Find(value, "name");
    if (name == nullptr) {
      Refuse(name_path, "missing; a parameter has a name");
    }
    std::string text = ReadText(*name, name_path, kMaxNameBytes);
    if (text.empty() || text == "__metadata__") {
      Refuse(name_path, Excerpt(*name) + " cannot name a parameter");
    }
    if (!names_.insert(text).second) {
      Refuse(name_path, Excerpt(*name) + " is the name of two parameters; names are unique");
    }
    return text;
  }

  void ReadRuleAndGroup(const Json& value, const KeyPath& path, ParameterSpec* parameter) {
    const Json* rule = Find(value, "rule");
    const Json* group = Find(value, "group");
    parameter->rule = parameter->shape.size() >= 2 ? Rule::kMuon : Rule::kAdamW;
    if (group != nullptr) {
      const KeyPath group_path(path, "group");
      const auto found = group_index_.find(ReadText(*group, group_path, kMaxNameBytes));
      if (found == group_index_.end()) {
        Refuse(group_path, Excerpt(*group) + " is not among groups; known: " + ListGroups());
      }
      parameter->group = found->second;
      parameter->rule = groups_[static_cast<size_t>(found->second)].rule.value_or(parameter->rule);
    }
    if (rule != nullptr) {
      parameter->rule = ReadEnum(*rule, KeyPath(path, "rule"), kRules);
    }
    if (group == nullptr) {
      parameter->group = group_index_.at(std::string(NameOf(parameter->rule)));
    }
  }

  std::string ListGroups() const {
    std::string list;
    for (const GroupSpec& group : groups_) {
      list += (list.empty() ? "" : ", ") + group.name;
    }
    return Excerpt(Json(list));
  }

  // Adds the parameter to what the session has in all.
  void Count(const ParameterSpec& parameter, const KeyPath& path) {
    const KeyPath shape_path(path, "shape");
    elements_ += parameter.elements();
    if (elements_ > kMaxSessionElements) {
      Refuse(shape_path, "with " + Excerpt(Json(parameter.shape)) + " the session has more than " +
                             std::to_string(kMaxSessionElements) + " elements");
    }
    if (parameter.rule != Rule::kMuon) {
      return;
    }
    const View& view = parameter.view;
    const auto parts =
        static_cast<int64_t>(std::max<size_t>({1, view.split_rows.size(), view.split_cols.size(),
                                               static_cast<size_t>(view.interleave_rows)}));
    const int64_t experts = view.stack ? parameter.shape.front() : 1;
    if (experts > (kMaxSessionMatrices - matrices_) / parts) {
      Refuse(shape_path, "with " + Excerpt(Json(parameter.shape)) + " the session has more than " +
                             std::to_string(kMaxSessionMatrices) + " matrices");
    }
    matrices_ += experts * parts;
    CheckMatrixSides(parameter, shape_path);
  }

  const std::vector<GroupSpec>& groups_;
  std::unordered_map<std::string, int> group_index_;
  std::unordered_set<std::string> names_;
  int64_t elements_ = 0;
  int64_t matrices_ = 0;
};

// Explicit orders first, ascending; then natural order of names.
bool CanonicalLess(const ParameterSpec& a, const ParameterSpec& b) {
  if (a.order.has_value() != b.order.has_value()) {
    return a.order.has_value();
  }
  if (a.order && *a.order != *b.order) {
    return *a.order < *b.order;
  }
  return NaturalLess(a.name, b.name);
}

}  // namespace

std::vector<ParameterSpec> ReadParameters(const Json* parameters, const KeyPath& path,
                                          const std::vector<GroupSpec>& groups) {
  if (parameters == nullptr) {
    Refuse(path, "missing; a session has at least one parameter");
  }
  if (!parameters->is_array() || parameters->empty() || parameters->size() > kMaxParameters) {
    Refuse(path, Excerpt(*parameters) + " is not a list of 1 to " + std::to_string(kMaxParameters) +
                     " parameters");
  }
  ParameterReader reader(groups);
  std::vector<ParameterSpec> read;
  read.reserve(parameters->size());
  for (size_t i = 0; i < parameters->size(); ++i) {
    read.push_back(reader.Read((*parameters)[i], KeyPath(path, i)));
  }
  std::sort(read.begin(), read.end(), CanonicalLess);
  return read;
}

}  // namespace dmuon::spec

// The spec's spelling of every enumerator, for reading and writing alike. Internal to proto/.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "proto/dtype.h"
#include "proto/session_spec.h"

namespace dmuon::spec {

template <typename E>
struct EnumName {
  std::string_view name;
  E value;
};

inline constexpr EnumName<Rule> kRules[] = {{"muon", Rule::kMuon}, {"adamw", Rule::kAdamW}};
inline constexpr EnumName<MomentumForm> kMomentumForms[] = {{"sgd", MomentumForm::kSgd},
                                                            {"ema", MomentumForm::kEma}};
inline constexpr EnumName<UpdateScale> kScales[] = {
    {"original", UpdateScale::kOriginal},
    {"match_rms_adamw", UpdateScale::kMatchRmsAdamW},
    {"spectral", UpdateScale::kSpectral},
    {"spectral_max", UpdateScale::kSpectralMax},
    {"none", UpdateScale::kNone}};
inline constexpr EnumName<Normalize> kNormalizations[] = {{"strict", Normalize::kStrict},
                                                          {"eps_add", Normalize::kEpsAdd},
                                                          {"eps_max", Normalize::kEpsMax}};
inline constexpr EnumName<NsForm> kForms[] = {
    {"auto", NsForm::kAuto}, {"direct", NsForm::kDirect}, {"gram", NsForm::kGram}};
inline constexpr EnumName<Precision> kPrecisions[] = {{"auto", Precision::kAuto},
                                                      {"bf16", Precision::kBf16},
                                                      {"fp16", Precision::kFp16},
                                                      {"fp32", Precision::kFp32}};
inline constexpr EnumName<Reduce> kReductions[] = {{"mean", Reduce::kMean}, {"sum", Reduce::kSum}};
inline constexpr EnumName<DType> kParameterDTypes[] = {
    {"fp32", DType::kFloat32}, {"bf16", DType::kBFloat16}, {"fp16", DType::kFloat16}};
inline constexpr EnumName<DType> kMomentumDTypes[] = {{"fp32", DType::kFloat32},
                                                      {"bf16", DType::kBFloat16}};

template <typename E, size_t N>
constexpr std::string_view NameIn(const EnumName<E> (&table)[N], E value) {
  for (const EnumName<E>& entry : table) {
    if (entry.value == value) {
      return entry.name;
    }
  }
  return "?";
}

// "sgd, ema": what a message offers instead of a value that is refused.
template <typename E, size_t N>
std::string ListNames(const EnumName<E> (&table)[N]) {
  std::string list;
  for (const EnumName<E>& entry : table) {
    list += (list.empty() ? "" : ", ") + std::string(entry.name);
  }
  return list;
}

}  // namespace dmuon::spec

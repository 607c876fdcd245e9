#include "tests/bench/arguments.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <thread>

namespace dmuon::kernels::testing {
namespace {

int64_t PositiveNumber(std::string_view option, std::string_view text, int64_t largest) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > largest) {
    throw std::invalid_argument(std::string(option) + " '" + std::string(text) +
                                "' is not a number from 1 to " + std::to_string(largest));
  }
  return value;
}

void ReadShape(std::string_view text, CaseRequest& request) {
  constexpr int64_t kLargestSide = std::numeric_limits<int32_t>::max();
  const std::size_t cross = text.find('x');
  if (cross == std::string_view::npos) {
    throw std::invalid_argument("--shape '" + std::string(text) + "' is not ROWSxCOLS");
  }
  request.rows = PositiveNumber("rows of --shape", text.substr(0, cross), kLargestSide);
  request.cols = PositiveNumber("columns of --shape", text.substr(cross + 1), kLargestSide);
}

// Whether the option takes no value.
bool ReadFlag(std::string_view option, Arguments& arguments) {
  if (option == "--json") {
    arguments.json = true;
  } else if (option == "--batched") {
    arguments.request.batched = true;
  } else if (option == "--accuracy" || option == "--no-accuracy") {
    arguments.accuracy = option == "--accuracy";
  } else if (option == "--help" || option == "-h") {
    arguments.help = true;
  } else {
    return false;
  }
  return true;
}

void ReadValue(std::string_view option, const std::string& value, Arguments& arguments) {
  constexpr int64_t kLargestCount = 1 << 20;
  CaseRequest& request = arguments.request;
  if (option == "--shape") {
    arguments.shape = value;
    ReadShape(value, request);
  } else if (option == "--batch") {
    request.batch = PositiveNumber(option, value, kLargestCount);
  } else if (option == "--threads") {
    request.threads = static_cast<int>(PositiveNumber(option, value, kLargestCount));
  } else if (option == "--device") {
    request.device = value;
  } else if (option == "--precision") {
    request.precision = value;
  } else {
    request.form = value;
  }
}

bool TakesValue(std::string_view option) {
  constexpr std::string_view kOptions[] = {"--shape",  "--batch",     "--threads",
                                           "--device", "--precision", "--form"};
  return std::find(std::begin(kOptions), std::end(kOptions), option) != std::end(kOptions);
}

}  // namespace

std::string Usage() {
  return "Times the Muon step against the machine's best GEMM rate.\n"
         "  --shape ROWSxCOLS    one case; without it, the shipped list\n"
         "  --batch N            matrices (1)\n"
         "  --device NAME        cpu or cuda (cpu)\n"
         "  --precision NAME     auto, fp32, bf16 or fp16 (auto)\n"
         "  --form NAME          auto, direct or gram (auto)\n"
         "  --threads N          threads of the cpu device (all cores)\n"
         "  --batched            cuda: one call for many matrices, whose bits depend on the batch\n"
         "  --json               one JSON object instead of lines\n"
         "  --no-accuracy        do not measure errors\n";
}

Arguments ParseArguments(int argc, const char* const* argv) {
  Arguments arguments;
  arguments.request.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  for (int i = 1; i < argc; ++i) {
    std::string option = argv[i];
    if (ReadFlag(option, arguments)) {
      continue;
    }
    const std::size_t equals = option.find('=');  // --option=value and --option value
    const std::string name = option.substr(0, equals);
    if (!TakesValue(name)) {
      throw std::invalid_argument("unknown option '" + option + "'; --help lists them");
    }
    if (equals != std::string::npos) {
      ReadValue(name, option.substr(equals + 1), arguments);
    } else if (++i < argc) {
      ReadValue(name, argv[i], arguments);
    } else {
      throw std::invalid_argument(name + " needs a value");
    }
  }
  return arguments;
}

}  // namespace dmuon::kernels::testing

#include "scheduler/byte_codec.h"

#include <bit>
#include <cmath>
#include <stdexcept>

namespace dmuon::scheduler {

void ByteWriter::Integer(uint64_t value) {
  for (; value >= 0x80; value >>= 7) {
    bytes_.push_back(static_cast<char>(value | 0x80));
  }
  bytes_.push_back(static_cast<char>(value));
}

void ByteWriter::Real(double value) {
  auto bits = std::bit_cast<uint64_t>(value);
  for (int i = 0; i < 8; ++i, bits >>= 8) {
    bytes_.push_back(static_cast<char>(bits));
  }
}

void ByteWriter::Text(std::string_view text) {
  Integer(text.size());
  Raw(text);
}

void ByteReader::Refuse(const std::string& what) {
  throw std::invalid_argument("plan bytes: " + what +
                              "; owners must all run the same version of dmuond");
}

void ByteReader::Expect(std::string_view bytes) {
  if (rest_.substr(0, bytes.size()) != bytes) {
    Refuse("they do not start as a plan does");
  }
  rest_.remove_prefix(bytes.size());
}

uint64_t ByteReader::Integer(uint64_t max, const char* what) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    if (rest_.empty() || shift > 56) {
      Refuse(std::string(what) + " is cut off");
    }
    const auto byte = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) {
      break;
    }
  }
  if (value > max) {
    Refuse(std::string(what) + " is " + std::to_string(value) + ", more than " +
           std::to_string(max));
  }
  return value;
}

size_t ByteReader::Count(const char* what) {
  const uint64_t count = Integer(rest_.size(), what);
  if (count > rest_.size()) {  // which is less by the count itself now
    Refuse(std::string(what) + " is cut off");
  }
  return count;
}

double ByteReader::Real(const char* what) {
  if (rest_.size() < 8) {
    Refuse(std::string(what) + " is cut off");
  }
  uint64_t bits = 0;
  for (size_t i = 8; i-- > 0;) {
    bits = bits << 8 | static_cast<unsigned char>(rest_[i]);
  }
  rest_.remove_prefix(8);
  const auto value = std::bit_cast<double>(bits);
  if (!std::isfinite(value)) {
    Refuse(std::string(what) + " is not finite");
  }
  return value;
}

std::string ByteReader::Text(const char* what) {
  const size_t size = Count(what);
  std::string text(rest_.substr(0, size));
  rest_.remove_prefix(size);
  return text;
}

void ByteReader::End() const {
  if (!rest_.empty()) {
    Refuse(std::to_string(rest_.size()) + " bytes too many");
  }
}

}  // namespace dmuon::scheduler

// LEB128 varints and little-endian doubles, and reading them back without trusting them. Internal
// to scheduler/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace dmuon::scheduler {

class ByteWriter {
 public:
  void Raw(std::string_view bytes) { bytes_ += bytes; }
  void Integer(uint64_t value);
  void Real(double value);
  void Text(std::string_view text);
  template <typename E>
  void Enumerator(E value) {
    Integer(static_cast<uint64_t>(value));
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Every call throws std::invalid_argument naming `what` when the bytes end early or hold a value
// that is out of range.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  void Expect(std::string_view bytes);
  uint64_t Integer(uint64_t max, const char* what);
  // How many entries follow; each takes at least one byte, so more cannot be honest.
  size_t Count(const char* what);
  double Real(const char* what);  // finite
  std::string Text(const char* what);
  template <typename E>
  E Enumerator(E last, const char* what) {
    return static_cast<E>(Integer(static_cast<uint64_t>(last), what));
  }
  void End() const;

  [[noreturn]] static void Refuse(const std::string& what);

 private:
  std::string_view rest_;
};

}  // namespace dmuon::scheduler

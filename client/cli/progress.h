// Progress of long work on stderr: a bar that is redrawn on a terminal, else one line for each part
// that is done.
#pragma once

#include <cstddef>
#include <string>

namespace dmuon::cli {

class Progress {
 public:
  explicit Progress(size_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // The next part begins.
  void Start(const std::string& part);
  // The part that was begun is done; `result` is what a line says of it.
  void Finish(const std::string& result);
  // A line that stays, above the bar.
  void Say(const std::string& line);

 private:
  void Draw() const;
  void Erase() const;

  bool terminal_;
  size_t total_;
  size_t done_ = 0;
  std::string part_;
};

}  // namespace dmuon::cli

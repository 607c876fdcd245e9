#include "client/cli/svg.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "client/cli/command.h"

namespace dmuon::cli {
namespace {

std::string Escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    escaped += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  }
  return escaped;
}

}  // namespace

std::string SvgNumber(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f", value);
  return text;
}

void WriteSvgHead(double width, double height, std::ostream* svg) {
  *svg << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << SvgNumber(width) << "\" height=\""
       << SvgNumber(height)
       << "\" font-family=\"sans-serif\" font-size=\"12\">\n"
          "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
}

void WriteSvgText(double x, double y, const std::string& text, std::ostream* svg) {
  *svg << "<text x=\"" << SvgNumber(x) << "\" y=\"" << SvgNumber(y) << "\">" << Escaped(text)
       << "</text>\n";
}

void WriteSvgBox(const SvgBox& box, const std::string& colour, const std::string& title,
                 std::ostream* svg) {
  *svg << "<rect x=\"" << SvgNumber(box.x) << "\" y=\"" << SvgNumber(box.y) << "\" width=\""
       << SvgNumber(box.width) << "\" height=\"" << SvgNumber(box.height) << "\" fill=\"" << colour
       << "\"";
  if (title.empty()) {
    *svg << "/>\n";
  } else {
    *svg << "><title>" << Escaped(title) << "</title></rect>\n";
  }
}

void SaveSvg(const std::string& svg, const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  file << svg << std::flush;
  if (!file) {
    throw InputError(path + ": cannot be written: " + std::strerror(errno));
  }
}

}  // namespace dmuon::cli

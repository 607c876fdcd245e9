// The few things that our images are made of.
#pragma once

#include <ostream>
#include <string>

namespace dmuon::cli {

// A coordinate.
std::string SvgNumber(double value);

struct SvgBox {
  double x = 0.0;
  double y = 0.0;
  double width = 0.0;
  double height = 0.0;
};

// Starts an image of this size on white; "</svg>" ends it.
void WriteSvgHead(double width, double height, std::ostream* svg);
void WriteSvgText(double x, double y, const std::string& text, std::ostream* svg);
// `title` shows when the pointer rests on the box; empty: none.
void WriteSvgBox(const SvgBox& box, const std::string& colour, const std::string& title,
                 std::ostream* svg);

// Throws InputError naming the file where it cannot be written.
void SaveSvg(const std::string& svg, const std::string& path);

}  // namespace dmuon::cli

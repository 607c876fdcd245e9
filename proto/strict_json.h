// JSON from outside, read strictly: every key once, bounded depth, one-line messages. Internal to
// proto/, scheduler/ and the command line tool.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace dmuon {

using Json = nlohmann::json;

// Throws SpecError: empty text, not JSON (with line and column), a key twice in one object, deeper
// nesting than `max_depth`.
Json ParseStrictJson(std::string_view text, int max_depth);

// `value` as JSON for a message: one line, cut where it is long.
std::string Excerpt(const Json& value);

}  // namespace dmuon

// The input classes, under the names that tests use.
#pragma once

#include "kernels/accuracy/inputs.h"
#include "tests/kernels/reference.h"

namespace dmuon::kernels::testing {

using accuracy::AllInputClasses;
using accuracy::InputClass;
using accuracy::MakeInput;
using accuracy::NameOf;

}  // namespace dmuon::kernels::testing

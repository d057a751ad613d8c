// The findings as report.json. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "trainsys/measure/findings.h"

namespace trainsys {

// Everything that was found, and the figures that follow from it, so that
// every number of the page is there. Names are stable; units end them
// (_bytes, _ms, _us, _percent). What is not finite is null; a part that was not
// measured is absent.
// Errors: InvalidArgument as answers.h.
nlohmann::ordered_json AsJson(const Findings& findings);

// The file's text.
std::string AsJsonText(const nlohmann::ordered_json& report);

}  // namespace trainsys

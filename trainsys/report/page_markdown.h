// The one-page report as Markdown. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "trainsys/measure/findings.h"

namespace trainsys {

// The same sentences and tables as AsHtml(), without its pictures.
// `report`: AsJson(findings). Errors: as AsJson.
std::string AsMarkdown(const Findings& findings,
                       const nlohmann::ordered_json& report);

}  // namespace trainsys

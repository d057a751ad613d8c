// The one-page report as a web page. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "trainsys/measure/findings.h"

namespace trainsys {

// Self-contained: inline pictures, no script, no address. Light and dark as
// the reader's screen is; printed, one A4 page, without the table of all
// sizes, which a screen shows on demand. Every figure is a <data> element with
// its place in report.json: data-json the path, value what stands there,
// data-unit what the shown text counts in.
// `report`: AsJson(findings). Errors: as AsJson.
std::string AsHtml(const Findings& findings,
                   const nlohmann::ordered_json& report);

}  // namespace trainsys

#include "tools/setting.h"

#include <fmt/chrono.h>
#include <fmt/core.h>
#include <sys/utsname.h>

#include <ctime>
#include <fstream>
#include <thread>

namespace trainsys {
namespace {

using nlohmann::ordered_json;

constexpr size_t kColumns = 80;

std::string Processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t begin = line.find(": ");
    if (begin != std::string::npos) return line.substr(begin + 2);
  }
  return "unknown processor";
}

std::string Kernel() {
  utsname name{};
  return uname(&name) == 0 ? name.release : "unknown";
}

}  // namespace

Setting SettingHere(const std::string& tool, const std::string& backend) {
  Setting setting;
  setting.tool = tool;
  setting.backend = backend;
  setting.machine = Processor();
  setting.cores = static_cast<int>(std::thread::hardware_concurrency());
  setting.date =
      fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr)));
  setting.versions = {{"compiler", "g++ " __VERSION__}, {"Linux", Kernel()}};
  return setting;
}

std::string HeaderText(const Setting& setting) {
  std::vector<std::string> parts{
      setting.machine, fmt::format("{} cores", setting.cores), setting.date};
  for (const auto& [name, version] : setting.versions) {
    parts.push_back(name + " " + version);
  }
  std::string text, line;
  for (std::string& part : parts) {
    part.resize(std::min(part.size(), kColumns - 1));
    if (line.size() + part.size() + 3 > kColumns) {
      text += line + ";\n";
      line.clear();
    }
    line += (line.empty() ? "" : "; ") + part;
  }
  return text + line + "\n";
}

ordered_json ResultOf(const Setting& setting, ordered_json rows) {
  ordered_json versions = ordered_json::object();
  for (const auto& [name, version] : setting.versions) {
    versions[name] = version;
  }
  const bool has_ranks = !setting.backend.empty();
  return {{"tool", setting.tool},
          {"backend", has_ranks ? ordered_json(setting.backend) : nullptr},
          {"machine", setting.machine},
          {"cores", setting.cores},
          {"date", setting.date},
          {"versions", std::move(versions)},
          {"notes", setting.notes},
          {"interrupted", setting.is_interrupted},
          {"rows", std::move(rows)}};
}

std::string TextOf(const ordered_json& result) {
  return result.dump(1, ' ', false, ordered_json::error_handler_t::replace) +
         "\n";
}

}  // namespace trainsys

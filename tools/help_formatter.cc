#include "tools/help_formatter.h"

#include <vector>

namespace trainsys {
namespace {

constexpr size_t kWidth = 80;
constexpr size_t kRight = 26;  // where the right side begins

// Lines of at most `width`, broken at blanks, or else behind commas.
std::vector<std::string> Wrap(const std::string& text, size_t width) {
  std::vector<std::string> lines;
  std::string rest = text;
  while (rest.size() > width) {
    size_t end = rest.rfind(' ', width);
    if (end == rest.npos || end == 0) end = rest.rfind(',', width - 1);
    end = end == rest.npos ? width : end + 1;
    lines.push_back(rest.substr(0, end));
    rest = rest.substr(end);
  }
  lines.push_back(rest);
  return lines;
}

std::string WithoutTrailingBlanks(std::string line) {
  line.resize(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string Entry(const std::string& left, const std::string& right) {
  std::string text, line = "  ";
  for (const std::string& part : Wrap(left, kWidth - 6)) {
    if (!text.empty() || line.size() > 2) {
      text += WithoutTrailingBlanks(line);
      line = "      ";
    }
    line += part;
  }
  if (line.size() + 2 > kRight) {
    text += WithoutTrailingBlanks(line);
    line.clear();
  }
  for (const std::string& part : Wrap(right, kWidth - kRight)) {
    line.resize(kRight, ' ');
    text += WithoutTrailingBlanks(line + part);
    line.clear();
  }
  return text;
}

// "INT:INT in [1 - 9]" -> "INT in [1 - 9]"; "TEXT:{a,b}" -> "{a,b}".
std::string TypeText(const std::string& type) {
  const size_t colon = type.find(':');
  if (colon == type.npos) return type;
  const std::string name = type.substr(0, colon);
  const std::string check = type.substr(colon + 1);
  if (check.starts_with('{') || check.starts_with(name)) return check;
  return check.empty() ? name : name + " " + check;
}

std::string DefaultText(std::string text) {
  if (text.starts_with('[')) return text.substr(1, text.size() - 2);
  return text;
}

std::string LeftText(const CLI::Option& option) {
  std::string text = option.get_name(false, true);
  if (option.get_expected_max() == 0) return text;  // a flag
  text += " " + TypeText(option.get_type_name());
  const std::string value = DefaultText(option.get_default_str());
  if (!value.empty()) text += "=" + value;
  if (option.get_expected_max() > 1) text += " ...";
  if (option.get_required()) text += " (required)";
  for (const CLI::Option* other : option.get_excludes()) {
    text += " (not with " + other->get_name() + ")";
  }
  return text;
}

}  // namespace

std::string HelpFormatter::make_usage(const CLI::App* app,
                                      std::string name) const {
  return "\n" + CLI::Formatter::make_usage(app, std::move(name));
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool) const {
  return Entry(LeftText(*option), option->get_description());
}

std::string HelpFormatter::make_subcommand(const CLI::App* command) const {
  return Entry(command->get_name(), command->get_description());
}

}  // namespace trainsys

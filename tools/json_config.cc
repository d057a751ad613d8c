#include "tools/json_config.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <fstream>
#include <istream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <utility>
#include <vector>

#include "collectives/errors.h"
#include "tools/output_file.h"

namespace trainsys {
namespace {

using collectives::InvalidArgument;
using Json = nlohmann::ordered_json;  // flags in the order of --help

bool IsFlag(const CLI::Option& option) {
  return option.get_expected_max() == 0;
}

bool IsList(const CLI::Option& option) { return option.get_expected_max() > 1; }

bool IsNumeric(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type.starts_with("INT") || type.starts_with("UINT") ||
         type.starts_with("FLOAT");
}

std::string KeyOf(const CLI::Option& option) {
  const auto& names = option.get_lnames();
  return names.empty() ? "" : names.front();
}

CLI::App* CommandNamed(CLI::App& app, const std::string& name) {
  const auto found = app.get_subcommands(
      [&name](CLI::App* command) { return command->get_name() == name; });
  return found.empty() ? nullptr : found.front();
}

// ------------------------------------------------------------------ reading

std::string ExpectedFor(const CLI::Option& option) {
  if (IsFlag(option)) return "true or false";
  const std::string one = IsNumeric(option) ? "a number" : "a text";
  if (IsList(option)) return one + " or an array of such";
  return one;
}

[[noreturn]] void ThrowWrong(const std::string& key, const Json& value,
                             const CLI::Option& option) {
  throw InvalidArgument(
      "'" + key + "' is " + value.dump() + ", expected " + ExpectedFor(option) +
      (value.is_null() ? "; leave it out for its default" : ""));
}

bool IsRight(const Json& value, const CLI::Option& option) {
  if (IsFlag(option)) return value.is_boolean();
  return value.is_string() || value.is_number();
}

std::string TextOf(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::vector<std::string> TextsOf(const std::string& key, const Json& value,
                                 const CLI::Option& option) {
  const bool is_array = value.is_array() && IsList(option) && !value.empty();
  const Json values = is_array ? value : Json::array({value});
  std::vector<std::string> texts;
  for (const Json& one : values) {
    if (!IsRight(one, option)) ThrowWrong(key, value, option);
    texts.push_back(TextOf(one));
  }
  return texts;
}

bool IsOverruled(const CLI::Option& option) {
  const auto& excluded = option.get_excludes();
  return std::any_of(excluded.begin(), excluded.end(),
                     [](const CLI::Option* o) { return o->count() > 0; });
}

using Items = std::vector<CLI::ConfigItem>;

constexpr char kChoice[] = "++";  // CLI11's name for: this subcommand

Items ItemsOf(CLI::App& app, const Json& flags,
              const std::vector<std::string>& parents);

// Those of a subcommand, and the one that chooses it; none where the command
// line has chosen another.
Items ItemsOfCommand(const CLI::App& app, CLI::App& command, const Json& flags,
                     std::vector<std::string> parents) {
  if (!flags.is_object()) {
    throw InvalidArgument("'" + command.get_name() + "' is " + flags.dump() +
                          ", expected an object of its flags");
  }
  parents.push_back(command.get_name());
  Items items = ItemsOf(command, flags, parents);
  if (app.got_subcommand(&command)) return items;
  if (!app.get_subcommands().empty()) return {};
  items.insert(items.begin(), {parents, kChoice, {}});
  return items;
}

Items ItemsOf(CLI::App& app, const Json& flags,
              const std::vector<std::string>& parents) {
  Items items;
  for (const auto& [key, value] : flags.items()) {
    if (CLI::App* const command = CommandNamed(app, key)) {
      const Items more = ItemsOfCommand(app, *command, value, parents);
      items.insert(items.end(), more.begin(), more.end());
      continue;
    }
    const CLI::Option* const option = app.get_option_no_throw("--" + key);
    if (!option || !option->get_configurable()) {
      throw InvalidArgument("unknown key '" + key +
                            "', expected a flag of --help without its dashes");
    }
    const auto texts = TextsOf(key, value, *option);
    if (!IsOverruled(*option)) {
      items.push_back({parents, KeyOf(*option), texts});
    }
  }
  return items;
}

// Of subcommands; more are none.
void RequireOneChoice(const Items& items) {
  const auto chosen = std::count_if(
      items.begin(), items.end(),
      [](const CLI::ConfigItem& item) { return item.name == kChoice; });
  if (chosen <= 1) return;
  throw InvalidArgument(
      "has more than one subcommand, expected one; or name one before "
      "--config");
}

// A flag by two of its names.
void RequireOneValueEach(const Items& items) {
  std::set<std::pair<std::vector<std::string>, std::string>> seen;
  for (const CLI::ConfigItem& item : items) {
    if (item.name == kChoice || seen.emplace(item.parents, item.name).second) {
      continue;
    }
    throw InvalidArgument("'" + item.name +
                          "' is there under two of its names, expected one");
  }
}

std::string TextOf(std::istream& input) {
  try {
    const std::string text{std::istreambuf_iterator<char>(input), {}};
    if (!input.bad()) return text;
  } catch (const std::exception&) {  // of the stream's buffer
  }
  throw InvalidArgument("cannot be read, expected a file of flags");
}

// Refuses what the parser would take: a key twice, and nesting without end.
Json ParseFlags(const std::string& text) {
  constexpr int kDeepest = 3;  // a list of a subcommand's flag
  std::vector<std::set<std::string>> keys;
  return Json::parse(
      text, [&keys](int depth, Json::parse_event_t event, Json& value) {
        if (depth > kDeepest) {
          throw InvalidArgument(
              "nests deeper than flags do, expected flags, as "
              "{\"ranks\": 4}");
        }
        if (event == Json::parse_event_t::object_start) keys.emplace_back();
        if (event == Json::parse_event_t::object_end) keys.pop_back();
        if (event == Json::parse_event_t::key) {
          const auto key = value.get<std::string>();
          if (!keys.back().insert(key).second) {
            throw InvalidArgument("'" + key + "' is there twice, expected one");
          }
        }
        return true;
      });
}

class JsonConfig final : public CLI::Config {
 public:
  explicit JsonConfig(CLI::App& app) : app_(app) {}

  Items from_config(std::istream& input) const override {
    const std::string flag = "--config '" + Path() + "': ";
    try {
      const Json flags = ParseFlags(TextOf(input));
      if (!flags.is_object()) {
        throw InvalidArgument(
            "no JSON object, expected flags, as {\"ranks\": 4}");
      }
      const Items items = ItemsOf(app_, flags, {});
      RequireOneChoice(items);
      RequireOneValueEach(items);
      return items;
    } catch (const Json::parse_error& error) {
      throw InvalidArgument(flag + "no JSON at byte " +
                            std::to_string(error.byte) +
                            ", expected flags, as {\"ranks\": 4}");
    } catch (const Json::exception&) {
      throw InvalidArgument(flag +
                            "has a number that is out of range, expected one "
                            "that its flag takes");
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(flag + error.what());
    }
  }

  std::string to_config(const CLI::App* app, bool, bool,
                        std::string) const override {
    return ConfigText(*app);
  }

 private:
  std::string Path() const { return app_.get_config_ptr()->as<std::string>(); }

  CLI::App& app_;
};

// Where the caller is, checked. A result that is not empty is what is wrong.
std::string CheckPath(std::string& path) {
  const std::string asked = std::exchange(path, FromCallersFolder(path));
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) {
    return "'" + asked + "' is no file, expected one that --print-config wrote";
  }
  if (!std::ifstream(path)) {
    return "cannot read '" + asked + "', expected a file that can be read";
  }
  return "";
}

// ------------------------------------------------------------------ writing

Json ValueOf(const std::string& text, const CLI::Option& option) {
  if (!IsNumeric(option) || !Json::accept(text)) return text;
  return Json::parse(text);
}

// As the option's default is shown: "[1,2]".
std::vector<std::string> SplitDefault(std::string text) {
  if (text.starts_with('[')) text = text.substr(1, text.size() - 2);
  std::replace(text.begin(), text.end(), ',', ' ');
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

std::vector<std::string> TextsOf(const CLI::Option& option) {
  if (option.count() > 0) return option.reduced_results();
  const std::string text = option.get_default_str();
  if (text.empty()) return {};
  if (IsList(option)) return SplitDefault(text);
  return {text};
}

// Null where it has none.
Json ValueOf(const CLI::Option& option) {
  if (IsFlag(option)) return option.count() > 0 && option.as<bool>();
  if (option.count() == 0 && IsOverruled(option)) return nullptr;
  Json values = Json::array();
  for (const std::string& text : TextsOf(option)) {
    values.push_back(ValueOf(text, option));
  }
  if (values.empty()) return nullptr;
  return IsList(option) ? values : values.front();
}

Json FlagsOf(const CLI::App& app) {
  Json flags = Json::object();
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_configurable()) continue;
    const Json value = ValueOf(*option);
    if (!value.is_null()) flags[KeyOf(*option)] = value;
  }
  for (const CLI::App* command : app.get_subcommands()) {
    flags[command->get_name()] = FlagsOf(*command);
  }
  return flags;
}

}  // namespace

void AddConfigFlag(CLI::App& app) {
  app.set_config("--config", "",
                 "JSON file of flags, as --print-config prints them")
      ->transform(CLI::Validator(CheckPath, "", "path"))
      ->type_name("FILE");
  app.config_formatter(std::make_shared<JsonConfig>(app));
  for (CLI::App* const command : app.get_subcommands({})) {
    command->configurable();
  }
}

std::string ConfigText(const CLI::App& app) {
  // A path need not be UTF-8.
  return FlagsOf(app).dump(2, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

}  // namespace trainsys

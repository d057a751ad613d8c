#include "collectives/record/record_bytes.h"

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>

#include "collectives/errors.h"

namespace collectives {
namespace {

using nlohmann::json;

constexpr int64_t kVersion = 2;
constexpr int64_t kMinInt64 = std::numeric_limits<int64_t>::min();
constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

// Bounds that a number must keep, both included.
struct Bounds {
  int64_t min = kMinInt64;
  int64_t max = kMaxInt64;
};
constexpr Bounds kAnyTime;  // another machine's may be negative here
constexpr Bounds kCount{.min = 0};

template <typename Enum>
constexpr Bounds UpTo(Enum last) {
  return {0, static_cast<int64_t>(last)};
}

[[noreturn]] void ThrowForeign(const std::string& what) {
  throw Error("these bytes are not a rank's records: " + what);
}

// Collects the numbers and texts of one flat array. The parser recurses into
// nested arrays; refusing those bounds its stack.
class FlatArray final : public nlohmann::json_sax<json> {
 public:
  using Value = std::variant<int64_t, std::string>;

  std::vector<Value> TakeValues() { return std::move(values_); }

  bool number_integer(number_integer_t number) override {
    values_.emplace_back(std::in_place_type<int64_t>, number);
    return true;
  }
  bool number_unsigned(number_unsigned_t number) override {
    if (number > static_cast<uint64_t>(kMaxInt64)) return false;
    return number_integer(static_cast<int64_t>(number));
  }
  bool string(string_t& text) override {
    values_.emplace_back(std::move(text));
    return true;
  }
  bool start_array(size_t) override { return ++num_arrays_ == 1; }
  bool end_array() override { return true; }

  bool null() override { return false; }
  bool boolean(bool) override { return false; }
  bool number_float(number_float_t, const string_t&) override { return false; }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return false; }
  bool key(string_t&) override { return false; }
  bool end_object() override { return false; }
  bool parse_error(size_t, const std::string&,
                   const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  int num_arrays_ = 0;
  std::vector<Value> values_;
};

class Writer {
 public:
  template <typename T>
  void Number(const T& number, Bounds) {
    values_.push_back(static_cast<int64_t>(number));
  }
  void Text(const std::string& text) { values_.push_back(text); }
  template <typename T>
  void Size(const std::vector<T>& list) {
    Number(list.size(), kCount);
  }
  std::vector<std::byte> Bytes() const {
    const std::vector<uint8_t> cbor = json::to_cbor(values_);
    const auto bytes = std::as_bytes(std::span(cbor));
    return {bytes.begin(), bytes.end()};
  }

 private:
  json values_ = json::array();
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) {
    const auto* begin = reinterpret_cast<const char*>(bytes.data());
    FlatArray array;
    if (!json::sax_parse(begin, begin + bytes.size(), &array,
                         json::input_format_t::cbor)) {
      ThrowForeign("cut short, or of another kind");
    }
    values_ = array.TakeValues();
  }

  template <typename T>
  void Number(T& number, Bounds bounds) {
    const int64_t value = Next<int64_t>();
    if (value < bounds.min || value > bounds.max) {
      ThrowForeign("value " + std::to_string(next_ - 1) + " is " +
                   std::to_string(value));
    }
    number = static_cast<T>(value);
  }
  void Text(std::string& text) { text = std::move(Next<std::string>()); }
  // Each element has one value at least.
  template <typename T>
  void Size(std::vector<T>& list) {
    size_t size = 0;
    Number(size, UpTo(values_.size() - next_));
    list.resize(size);
  }
  void End() const {
    if (next_ != values_.size()) ThrowForeign("too many values");
  }

 private:
  template <typename T>
  T& Next() {
    if (next_ == values_.size()) ThrowForeign("values are missing");
    auto* value = std::get_if<T>(&values_[next_]);
    if (!value) {
      ThrowForeign("value " + std::to_string(next_) + " has another type");
    }
    ++next_;
    return *value;
  }

  std::vector<FlatArray::Value> values_;
  size_t next_ = 0;
};

// What is written and read, in this order; const for a Writer.
template <typename Archive, typename SomeRecord>
void VisitRecord(Archive& archive, SomeRecord& record) {
  archive.Text(record.channel);
  archive.Number(record.sequence, kCount);
  archive.Number(record.operation, UpTo(Operation::kDuplicate));
  archive.Number(record.reduce_op, UpTo(ReduceOp::kMax));
  archive.Number(record.dtype, UpTo(DType::kU8));
  archive.Number(record.elems, kCount);
  archive.Number(record.bytes, kCount);
  archive.Number(record.sent_bytes, kCount);
  archive.Text(record.label);
  archive.Number(record.is_async, UpTo(true));
  archive.Number(record.is_recomputed, UpTo(true));
  archive.Number(record.state, UpTo(RecordState::kFailed));
  archive.Number(record.posted_ns, kAnyTime);
  archive.Number(record.matched_ns, kAnyTime);
  archive.Number(record.done_ns, kAnyTime);
  archive.Number(record.wait_began_ns, kAnyTime);
  archive.Number(record.wait_ended_ns, kAnyTime);
}

template <typename Archive, typename SomePhase>
void VisitPhase(Archive& archive, SomePhase& phase) {
  archive.Text(phase.name);
  archive.Number(phase.step, Bounds{});  // -1: of no step
  archive.Number(phase.begin_ns, kAnyTime);
  archive.Number(phase.end_ns, kAnyTime);
}

template <typename Archive, typename SomeParts>
void VisitParts(Archive& archive, SomeParts& parts) {
  archive.Number(parts.rank, UpTo(std::numeric_limits<int>::max()));
  archive.Number(parts.lost, kCount);
  archive.Number(parts.lost_phases, kCount);
  archive.Number(parts.clock.offset_ns, kAnyTime);
  archive.Number(parts.clock.error_ns, kCount);
  archive.Size(parts.records);
  for (auto& record : parts.records) VisitRecord(archive, record);
  archive.Size(parts.phases);
  for (auto& phase : parts.phases) VisitPhase(archive, phase);
}

}  // namespace

std::vector<std::byte> ToBytes(const Recorder& recorder) {
  Writer writer;
  writer.Number(kVersion, Bounds{});
  const RecorderParts parts = recorder.Parts();
  VisitParts(writer, parts);
  return writer.Bytes();
}

Recorder FromBytes(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  int64_t version = 0;
  reader.Number(version, Bounds{});
  if (version != kVersion) {
    ThrowForeign("version " + std::to_string(version) + ", expected " +
                 std::to_string(kVersion) +
                 "; run the same build in every process");
  }
  RecorderParts parts;
  VisitParts(reader, parts);
  reader.End();
  return Recorder(std::move(parts));
}

}  // namespace collectives

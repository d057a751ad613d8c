#include "tests/ddp/random_module.h"

#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include <random>
#include <sstream>

namespace trainsys {
namespace {

using Generator = std::mt19937_64;

int64_t Pick(Generator& random, const std::vector<int64_t>& from) {
  return from[random() % from.size()];
}

bool Chance(Generator& random, int percent) {
  return random() % 100 < static_cast<uint64_t>(percent);
}

std::vector<Layer> MakeLayers(Generator& random) {
  std::vector<Layer> layers(1 + random() % 6);
  const std::vector<int64_t> widths{0, 1, 3, 8, 8, 8, 17};
  const bool mixes_dtypes = Chance(random, 30), is_f64 = Chance(random, 30);
  for (size_t i = 0; i < layers.size(); ++i) {
    Layer& layer = layers[i];
    layer.in = i == 0 ? Pick(random, widths) : layers[i - 1].out;
    layer.out = Pick(random, widths);
    const bool is_double = mixes_dtypes ? Chance(random, 50) : is_f64;
    layer.dtype = is_double ? at::kDouble : at::kFloat;
    for (bool& is_frozen : layer.is_frozen) is_frozen = Chance(random, 15);
    layer.is_never_used = Chance(random, 8);
    layer.tied_to = i;
    for (size_t j = 0; j < i; ++j) {
      const bool is_alike = layers[j].in == layer.in &&
                            layers[j].out == layer.out &&
                            layers[j].dtype == layer.dtype;
      if (is_alike && layer.tied_to == i) layer.tied_to = layers[j].tied_to;
    }
  }
  // There is something to train, and every loss depends on it.
  layers[0].is_frozen[0] = layers[0].is_never_used = false;
  return layers;
}

uint64_t SeedOf(const MicroStep& at) {
  return static_cast<uint64_t>(100 * at.step + 10 * at.number + at.rank);
}

bool UsesLayer(const Scenario& s, size_t layer, const MicroStep& at) {
  if (s.layers[layer].is_never_used) return false;
  if (layer == 0 || !s.skips_layers) return true;
  return Generator(SeedOf(at) + 1000 * layer)() % 2 == 0;
}

}  // namespace

Scenario MakeScenario(uint64_t seed) {
  Generator random(seed);
  Scenario s;
  s.layers = MakeLayers(random);
  s.skips_layers = Chance(random, 40);
  s.ranks = 1 + static_cast<int>(random() % 8);
  s.micro_steps = 1 + static_cast<int>(random() % 3);
  s.samples = Pick(random, {1, 2, 5});
  s.between = static_cast<BetweenSteps>(random() % 3);
  const std::vector<int64_t> caps{1, 64, 200, 1000, 1 << 20, int64_t{1} << 40};
  s.bucket_bytes = Pick(random, caps);
  s.first_bucket_bytes = Pick(random, caps);
  return s;
}

std::string Describe(const Scenario& s) {
  std::ostringstream text;
  text << s.ranks << " ranks, " << s.micro_steps << " micro-steps of "
       << s.samples << " samples, buckets of " << s.first_bucket_bytes
       << " and " << s.bucket_bytes << " bytes, gradients "
       << std::vector<const char*>{"dropped", "zeroed",
                                   "kept"}[static_cast<size_t>(s.between)]
       << (s.skips_layers ? ", skips layers; " : "; ");
  for (const Layer& layer : s.layers) {
    text << "[" << layer.in << " x " << layer.out << " "
         << c10::toString(layer.dtype) << " of " << layer.tied_to
         << (layer.is_frozen[0] ? " w frozen" : "")
         << (layer.is_frozen[1] ? " b frozen" : "")
         << (layer.is_never_used ? " never used" : "") << "]";
  }
  return text.str();
}

Tensors AddRandomLayers(torch::nn::Module& module, const Scenario& s,
                        uint64_t seed) {
  Tensors parameters;
  for (size_t i = 0; i < s.layers.size(); ++i) {
    const Layer& layer = s.layers[i];
    const Layer& owner = s.layers[layer.tied_to];
    const std::vector<int64_t> sizes[2] = {{layer.in, layer.out}, {layer.out}};
    for (size_t k = 0; k < 2; ++k) {
      const bool is_own = layer.tied_to == i;
      const at::Tensor values =
          is_own ? Random(1000 * seed + 2 * i + k, sizes[k], layer.dtype) * 0.4
                 : parameters[2 * layer.tied_to + k];
      parameters.push_back(
          module.register_parameter((k == 0 ? "w" : "b") + std::to_string(i),
                                    values, !owner.is_frozen[k]));
    }
  }
  return parameters;
}

at::Tensor RandomLoss(const Scenario& s, const Tensors& parameters,
                      const MicroStep& at) {
  at::Tensor h = Random(SeedOf(at), {s.samples, s.layers[0].in});
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (size_t i = 0; i < s.layers.size(); ++i) {
    const Layer& layer = s.layers[i];
    h = h.to(layer.dtype);
    if (UsesLayer(s, i, at)) {
      h = (at::matmul(h, parameters[2 * i]) + parameters[2 * i + 1]).tanh();
    } else {
      h = h.sum(1, /*keepdim=*/true).expand({s.samples, layer.out});
    }
    // Every layer counts, also behind one of width 0.
    loss = loss + h.square().sum().to(at::kDouble);
  }
  return loss;
}

bool UsesParameter(const Scenario& s, size_t parameter, int step, int rank) {
  for (size_t i = 0; i < s.layers.size(); ++i) {
    if (s.layers[i].tied_to != s.layers[parameter / 2].tied_to) continue;
    for (int m = 0; m < s.micro_steps; ++m) {
      if (UsesLayer(s, i, {step, m, rank})) return true;
    }
  }
  return false;
}

}  // namespace trainsys

#include "trainsys/data/stories.h"

#include <array>
#include <string_view>

#include "trainsys/random/splitmix64.h"

namespace trainsys {
namespace {

using Text = std::string_view;

struct Person {
  Text name, he, him, his;
};

constexpr std::array kPeople = {
    Person{"Mina", "she", "her", "her"},  Person{"Tobias", "he", "him", "his"},
    Person{"Wanda", "she", "her", "her"}, Person{"Ruben", "he", "him", "his"},
    Person{"Ilse", "she", "her", "her"},  Person{"Pavel", "he", "him", "his"},
    Person{"Nora", "she", "her", "her"},  Person{"Jonas", "he", "him", "his"},
    Person{"Lotta", "she", "her", "her"}, Person{"Emil", "he", "him", "his"},
};

constexpr std::array<Text, 8> kPlaces = {
    "the old mill",   "the harbour",     "the apple orchard", "the market",
    "the lighthouse", "the birch woods", "the stone bridge",  "the school yard",
};

constexpr std::array<Text, 8> kThings = {
    "red kite",      "tin whistle", "wooden boat",   "brass key",
    "green lantern", "paper crown", "woollen scarf", "clay jar",
};

constexpr std::array<Text, 8> kAnimals = {
    "grey cat",  "small brown dog", "goose",    "hedgehog",
    "black hen", "young goat",      "squirrel", "tired donkey",
};

constexpr std::array<Text, 6> kWeathers = {
    "a windy morning",     "a warm afternoon", "a rainy day",
    "a bright spring day", "a cold evening",   "the first day of snow",
};

constexpr std::array<Text, 6> kGifts = {
    "a slice of plum cake", "two ripe pears",  "a cup of hot milk",
    "a bag of nuts",        "some warm bread", "a pot of honey",
};

constexpr std::array<Text, 6> kOpenings = {
    "Once there was a child named {hero} who lived near {place}. ",
    "On {weather}, {hero} walked to {place} with a {thing}. ",
    "{hero} and {friend} were best friends, and they met at {place} each day. ",
    "It was {weather}, and nobody was at {place} but {hero}. ",
    "{hero} had a {thing}. {He} took it to {place} on {weather}. ",
    "Every summer {hero} went to {place}, and {friend} always came along. ",
};

constexpr std::array<Text, 6> kWishes = {
    "More than anything, {hero} loved {his} {thing}. ",
    "{He} wanted to show the {thing} to {friend}. ",
    "\"Look at my {thing}!\" said {hero}. \"It is lovely,\" said {friend}. ",
    "{hero} had made the {thing} with {his} own hands. ",
    "The {thing} had been a present from {friend}, and {hero} kept it safe. ",
    "\"May I hold the {thing}?\" asked {friend}. \"Of course,\" said {hero}. ",
};

constexpr std::array<Text, 6> kTroubles = {
    "But then a {animal} ran by and took the {thing} away. ",
    "Suddenly the wind came up, and the {thing} was gone. ",
    "When {he} looked again, the {thing} lay broken on the ground. ",
    "On the way home {hero} fell, and the {thing} rolled into the water. ",
    "A {animal} sat down on the {thing} and did not want to move. ",
    "That night {hero} could not find the {thing} anywhere. ",
};

constexpr std::array<Text, 6> kFeelings = {
    "{hero} was very sad, and {he} began to cry. ",
    "\"Oh no,\" said {hero}. \"What shall I do now?\" ",
    "{He} looked behind every tree and under every stone. ",
    "{hero} sat down near {place} and thought for a long time. ",
    "{hero} was angry at first, but {he} did not shout. ",
    "\"I must be brave,\" thought {hero}. ",
};

constexpr std::array<Text, 6> kHelps = {
    "{friend} heard {him} and came at once. \"I will help you,\" said "
    "{friend}. ",
    "Then {friend} had an idea. \"Let us give the {animal} {gift},\" said "
    "{friend}. ",
    "\"Do not worry,\" said {friend}. \"We will go back to {place} "
    "together.\" ",
    "{friend} took {his} hand, and they followed the {animal} to {place}. ",
    "A {animal} came out of the grass and showed {hero} the way. ",
    "{hero} asked {friend}, and {friend} asked everyone at {place}. ",
};

constexpr std::array<Text, 6> kSolutions = {
    "And there it was: the {thing}, as good as new. ",
    "They worked until dark, and then the {thing} was whole again. ",
    "The {animal} looked at {hero} and gave the {thing} back. ",
    "Behind the wall they found the {thing}, and next to it {gift}. ",
    "{friend} laughed, because the {thing} had been in {his} pocket all "
    "along. ",
    "\"Thank you, {friend},\" said {hero}, and held the {thing} tight. ",
};

constexpr std::array<Text, 6> kEndings = {
    "They shared {gift} and went home happy.\n\n",
    "From that day on, {hero} and {friend} looked after the {animal} "
    "together.\n\n",
    "{hero} learned that a friend is worth more than a {thing}.\n\n",
    "And when {hero} passes {place} today, {he} still thinks of {friend}.\n\n",
    "\"Tomorrow we will come to {place} again,\" said {hero}. The end.\n\n",
    "That evening {hero} told the whole story at home, and everyone "
    "smiled.\n\n",
};

template <size_t kCount>
Text Pick(const std::array<Text, kCount>& choices, SplitMix64& random) {
  return choices[random.Below(kCount)];
}

// One story: who and what it is about, the same in all its sentences.
class Story {
 public:
  explicit Story(SplitMix64& random) : random_(random) {
    const size_t hero = random.Below(kPeople.size());
    const size_t other = 1 + random.Below(kPeople.size() - 1);
    hero_ = kPeople[hero];
    friend_ = kPeople[(hero + other) % kPeople.size()].name;
    place_ = Pick(kPlaces, random);
    thing_ = Pick(kThings, random);
    animal_ = Pick(kAnimals, random);
    weather_ = Pick(kWeathers, random);
    gift_ = Pick(kGifts, random);
  }

  void AppendTo(std::string& out) {
    Expand(Pick(kOpenings, random_), out);
    Expand(Pick(kWishes, random_), out);
    Expand(Pick(kTroubles, random_), out);
    Expand(Pick(kFeelings, random_), out);
    Expand(Pick(kHelps, random_), out);
    Expand(Pick(kSolutions, random_), out);
    Expand(Pick(kEndings, random_), out);
  }

 private:
  // Replaces each {word} of a sentence.
  void Expand(Text sentence, std::string& out) const {
    for (size_t open; (open = sentence.find('{')) != Text::npos;) {
      const size_t close = sentence.find('}', open);
      out += sentence.substr(0, open);
      AppendWord(sentence.substr(open + 1, close - open - 1), out);
      sentence.remove_prefix(close + 1);
    }
    out += sentence;
  }

  void AppendWord(Text key, std::string& out) const {
    if (key == "hero") out += hero_.name;
    if (key == "he") out += hero_.he;
    if (key == "He") out += hero_.he == "he" ? "He" : "She";
    if (key == "him") out += hero_.him;
    if (key == "his") out += hero_.his;
    if (key == "friend") out += friend_;
    if (key == "place") out += place_;
    if (key == "thing") out += thing_;
    if (key == "animal") out += animal_;
    if (key == "weather") out += weather_;
    if (key == "gift") out += gift_;
  }

  SplitMix64& random_;
  Person hero_;
  Text friend_, place_, thing_, animal_, weather_, gift_;
};

}  // namespace

std::string MakeStories(uint64_t seed, size_t bytes) {
  constexpr size_t kLongestStory = 2048;
  SplitMix64 random(seed);
  std::string text;
  text.reserve(bytes + kLongestStory);
  while (text.size() < bytes) Story(random).AppendTo(text);
  text.resize(bytes);
  return text;
}

}  // namespace trainsys

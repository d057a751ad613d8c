// What is at the other end of a stream: a person at a terminal, or a file.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>

namespace trainsys {

// A terminal on which a line can be drawn again; so not one of TERM=dumb.
bool IsTerminal(std::FILE* stream);

// Columns: as the terminal says, else as COLUMNS says, else 80.
size_t WidthOf(std::FILE* stream);

// A terminal, unless NO_COLOR is set (https://no-color.org).
bool WantsColour(std::FILE* stream);

// Those of stdin, stdout and stderr that are closed become /dev/null: else a
// socket could get one of their numbers. Call: before anything is opened.
void OpenStandardDescriptors();

// Writes it at once. Where nobody takes it, it is lost: no training ends for
// that.
void Put(const std::string& text, std::FILE* stream);

// Text on its way to `stream`: where that wants colour, a PASS that begins a
// line is green and a FAIL red.
std::string Paint(const std::string& text, std::FILE* stream);

// The first `columns` characters of UTF-8 text, one column each.
std::string CutToColumns(const std::string& text, size_t columns);

}  // namespace trainsys

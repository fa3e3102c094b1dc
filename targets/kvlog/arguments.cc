#include "arguments.h"

#include <charconv>
#include <cstring>

namespace kvlog
{

std::int64_t number(const std::string &option, const char *text, std::int64_t least,
                    std::int64_t most)
{
    std::int64_t value = 0;
    const char *end = text + std::strlen(text);
    auto [stop, error] = std::from_chars(text, end, value);
    if (stop != end || error != std::errc() || value < least || value > most)
        throw UsageError(option + " '" + text + "' is not a number from " + std::to_string(least) +
                         " to " + std::to_string(most));
    return value;
}

} // namespace kvlog

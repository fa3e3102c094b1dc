// Reading numbers from a command line.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace kvlog
{

// For what the user has to put right in the command line.
struct UsageError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

std::int64_t number(const std::string &option, const char *text, std::int64_t least,
                    std::int64_t most);

} // namespace kvlog

// Reading numbers from a command line.
#pragma once

#include <stdexcept>
#include <string>

// For what the user has to put right in the command line.
struct UsageError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

long number(const std::string &option, const char *text, long least, long most);

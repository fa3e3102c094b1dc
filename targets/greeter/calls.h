// The calls of the clients, each client a process.
#pragma once

#include "figures.h"

#include <string>
#include <vector>

struct Plan {
    std::string target = "127.0.0.1:7400"; // as gRPC names it
    int clients = 1;
    int requests = 1000; // of each, after its first
};

struct Outcome {
    std::vector<std::vector<Call>> clients; // the first call of each comes first
    std::vector<std::string> failures;      // what ended a client before its time, or empty
    int stopped_by = 0;                     // a signal
};

// Has each client make its first call; then all together make the others.  Throws
// std::system_error.
Outcome make_calls(const Plan &plan);

// What the times of calls say, and what they seem to say when they are truncated.
#pragma once

#include <cstdint>
#include <vector>

struct Call {
    std::uint64_t begin_ns;
    std::uint64_t end_ns;
};

struct Figures {
    double p50_us, p90_us, p99_us, most_us;
    // From the first begin to the last end, of all clients together.
    double calls_per_ms;
    // The sum over the clients of calls / sum of latencies, each truncated to whole milliseconds;
    // infinite if those sum up to nothing.
    double truncated_calls_per_ms;
    // The same from whole nanoseconds.
    double untruncated_calls_per_ms;
    std::uint64_t truncated_to_nothing; // calls
};

// Of clients' calls, of which there must be at least one each.
Figures figures_of(const std::vector<std::vector<Call>> &clients);

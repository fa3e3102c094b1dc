#include "figures.h"

#include <algorithm>
#include <cmath>
#include <limits>

// The smallest latency that at least this share of the latencies does not exceed.
static double quantile_us(const std::vector<std::uint64_t> &sorted_ns, double share)
{
    auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted_ns.size())));
    return static_cast<double>(sorted_ns[rank - 1]) / 1e3;
}

Figures figures_of(const std::vector<std::vector<Call>> &clients)
{
    Figures figures = {};
    std::vector<std::uint64_t> latencies_ns;
    std::uint64_t first_ns = std::numeric_limits<std::uint64_t>::max(), last_ns = 0;
    for (const std::vector<Call> &calls : clients) {
        std::uint64_t sum_ns = 0, sum_of_truncated_ms = 0;
        for (const Call &call : calls) {
            std::uint64_t latency_ns = call.end_ns - call.begin_ns;
            latencies_ns.push_back(latency_ns);
            sum_ns += latency_ns;
            sum_of_truncated_ms += latency_ns / 1'000'000;
            figures.truncated_to_nothing += latency_ns < 1'000'000;
            first_ns = std::min(first_ns, call.begin_ns);
            last_ns = std::max(last_ns, call.end_ns);
        }
        auto count = static_cast<double>(calls.size());
        figures.untruncated_calls_per_ms += count / (static_cast<double>(sum_ns) / 1e6);
        figures.truncated_calls_per_ms += count / static_cast<double>(sum_of_truncated_ms);
    }
    std::sort(latencies_ns.begin(), latencies_ns.end());
    figures.p50_us = quantile_us(latencies_ns, 0.50);
    figures.p90_us = quantile_us(latencies_ns, 0.90);
    figures.p99_us = quantile_us(latencies_ns, 0.99);
    figures.most_us = quantile_us(latencies_ns, 1);
    figures.calls_per_ms =
        static_cast<double>(latencies_ns.size()) / (static_cast<double>(last_ns - first_ns) / 1e6);
    return figures;
}

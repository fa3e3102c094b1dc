// Tests of the figures, against values worked out by hand.
#include "figures.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);           \
            std::exit(1);                                                                          \
        }                                                                                          \
    } while (0)

static bool is_near(double value, double wanted)
{
    return std::fabs(value - wanted) < 1e-9 * wanted;
}

// A client that makes one call right after another, with these latencies in microseconds.
static std::vector<Call> calls_of(std::uint64_t begin_ns, const std::vector<int> &latencies_us)
{
    std::vector<Call> calls;
    for (int latency_us : latencies_us) {
        std::uint64_t end_ns = begin_ns + static_cast<std::uint64_t>(latency_us) * 1000;
        calls.push_back({begin_ns, end_ns});
        begin_ns = end_ns;
    }
    return calls;
}

int main()
{
    // 9 calls of 900 us and one of 1900 us: 10 ms in total; truncation leaves 1 ms.
    std::vector<int> latencies_us(9, 900);
    latencies_us.push_back(1900);
    Figures one = figures_of({calls_of(5, latencies_us)});
    CHECK(is_near(one.p50_us, 900) && is_near(one.p90_us, 900));
    CHECK(is_near(one.p99_us, 1900) && is_near(one.most_us, 1900));
    CHECK(is_near(one.calls_per_ms, 1) && is_near(one.untruncated_calls_per_ms, 1));
    CHECK(is_near(one.truncated_calls_per_ms, 10) && one.truncated_to_nothing == 9);

    // Two clients at once have twice the throughput; one after the other, they do not.
    Figures two = figures_of({calls_of(5, latencies_us), calls_of(5, latencies_us)});
    CHECK(is_near(two.calls_per_ms, 2) && is_near(two.untruncated_calls_per_ms, 2));
    CHECK(is_near(two.truncated_calls_per_ms, 20) && two.truncated_to_nothing == 18);
    Figures apart = figures_of({calls_of(0, latencies_us), calls_of(10'000'000, latencies_us)});
    CHECK(is_near(apart.calls_per_ms, 1) && is_near(apart.untruncated_calls_per_ms, 2));

    Figures short_ones = figures_of({calls_of(0, {100, 100})});
    CHECK(std::isinf(short_ones.truncated_calls_per_ms) && is_near(short_ones.calls_per_ms, 10));
    std::puts("figures: all tests passed");
}
